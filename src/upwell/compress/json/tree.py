"""Parse JSON into spans of its text, so that numbers, strings and duplicate keys stay as they were
written (`1.10` stays `1.10`), and split it into units: scalars with their key paths, and pieces of
long strings.

The parser does not recurse, so a document may be nested 100,000 levels deep. From a very large
document, only the records that matter are read: the items of the array that makes up most of it. It
is first scanned without building nodes below its records. The records that best match the question
and a sample of the others are then read in full; the rest are only counted. The number of records
read does not depend on the budget, so a smaller budget still selects a subset of what a larger one
selects.
"""

import re
from bisect import bisect_right

from msgspec import Struct, field

from upwell.compress.relevance import NO_QUESTION, RelevanceQuestion, ask, lowered, places, rarity
from upwell.ground.types.compression import Passage, TextKind

SCALAR, OBJECT, ARRAY = 0, 1, 2

_STRING = r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"'
_BARE = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity"
_GAP = r"[ \t\r\n]*+"
ITEM = re.compile(
    rf"{_GAP}(?:(?:({_STRING}){_GAP}:{_GAP})?+(?:({_STRING}|{_BARE})(?:{_GAP},)?+|([{{\[]))"
    rf"|([}}\]])(?:{_GAP},)?+|)"
)
"""Matches a value with its name and the comma after it, the beginning of a container with its name,
or the end of a container with the comma after it. Elsewhere it matches the empty string, so that
each match begins where the previous match ended."""
KEY, VALUE, OPEN, CLOSE = 1, 2, 3, 4
_NOT_JSON = frozenset({"NaN", "Infinity", "-Infinity"})

_ITEM, _ITEM_OR_END, _END = 0, 1, 2
"""What the parser expects next: an item (after a comma), an item or the end (after the beginning of
a container), or only the end (after an item without a comma)."""
_NO_ITEMS: "list[JsonNode]" = []
_NO_UNITS: list[int] = []
"""Shared empty lists. Most nodes are scalars that are never selected, and a separate list would use
more memory than the node itself."""


class JsonNode:
    """One value of a document.

    `kind`: SCALAR, OBJECT or ARRAY. `start`, `end`: its span in the text. `parent`: its container.
    `key`: its name as written, with quotes; "" in an array. `items`: its children. `size`: the
    number of scalars in it. `path`: the number of its key path. `nested`: whether it is inside an
    array. `beyond`: the number of children that were never read. `selected`: the selected children
    of a container. `units`: the selected units of a scalar.
    """

    __slots__ = (
        "beyond", "end", "items", "key", "kind", "nested", "parent", "path", "selected", "size",
        "start", "units",
    )  # fmt: skip

    def __init__(
        self, kind: int, key: str, start: int, end: int, parent: "JsonNode | None"
    ) -> None:
        self.kind = kind
        self.key = key
        self.start = start
        self.end = end
        self.parent = parent
        self.items: list[JsonNode] = [] if kind else _NO_ITEMS
        self.beyond = 0
        self.nested = False
        self.path = 0
        self.size = 1
        self.selected: list[JsonNode] | None = None
        self.units = _NO_UNITS

    def lexeme(self, text: str) -> str:
        """Return a scalar as written, or an empty container. NaN and Infinity become `null`."""
        if self.kind != SCALAR:
            return "{}" if self.kind == OBJECT else "[]"
        raw = text[self.start : self.end]
        if raw in _NOT_JSON:
            return "null"
        return compact(raw) if raw[0] in "[{" else raw


_MOST_DEPTH = 400
_LEAST_NODES, _MOST_NODES, _CHARS_PER_NODE = 20_000, 120_000, 16
"""A document may have one node for each `_CHARS_PER_NODE` characters, but at least `_LEAST_NODES`
and at most `_MOST_NODES`. JSON in tool responses has 25 to 40 characters per node.
"""


def parse(text: str, limit: int | None = None) -> JsonNode | None:  # noqa: C901, PLR0915 — one hot loop
    """Parse `text`. Returns None if it is not JSON; NaN and Infinity are accepted.

    Time and space are linear in the length of `text`. When there are `limit` nodes (by default as
    many as its length suggests), further items of a container are only counted, in `beyond`. A
    container below `_MOST_DEPTH` levels becomes a single value.
    """
    offset = 1 if text.startswith("\ufeff") else 0
    root = current = JsonNode(ARRAY, "", offset, len(text), None)
    items, is_object, expect = root.items, False, _ITEM
    usual = max(_LEAST_NODES, min(_MOST_NODES, len(text) // _CHARS_PER_NODE))
    left = usual if limit is None else limit
    depth = 0
    hidden = bytearray()  # the kinds of the open containers that have no nodes
    hidden_node: JsonNode | None = None
    for match in ITEM.finditer(text, offset):
        offset = match.end()
        token = match.lastindex
        if token == VALUE or token == OPEN:  # noqa: SIM109 — the hot loop
            key = match[KEY]
            if expect == _END or (key is not None) != is_object:
                return None
            start, end = match.span(token)
            if token == VALUE:
                if not hidden and (left > 0 or not items):
                    items.append(JsonNode(SCALAR, key or "", start, end, current))
                    left -= 1
                elif not hidden:
                    current.beyond += 1
                expect = _ITEM if text[offset - 1] == "," else _END
                continue
            is_object, expect = text[start] == "{", _ITEM_OR_END
            if hidden:
                hidden.append(is_object)
                continue
            if left <= 0 and items:
                current.beyond += 1
                hidden.append(is_object)
                continue
            left -= 1
            if depth >= _MOST_DEPTH or left < 0:
                hidden_node = JsonNode(SCALAR, key or "", start, end, current)
                items.append(hidden_node)
                hidden.append(is_object)
                continue
            current = JsonNode(OBJECT if is_object else ARRAY, key or "", start, end, current)
            items.append(current)
            items = current.items
            depth += 1
        elif token == CLOSE:
            end = match.end(CLOSE)
            closes_object = text[end - 1] == "}"
            if expect == _ITEM or closes_object != is_object or current.parent is None:
                return None
            if hidden:
                hidden.pop()
                if hidden_node is not None and not hidden:
                    hidden_node.end, hidden_node = end, None
                is_object = bool(hidden[-1]) if hidden else current.kind == OBJECT
            else:
                current.end = end
                current = current.parent
                items, is_object = current.items, current.kind == OBJECT
                depth -= 1
            expect = _ITEM if end < offset else _END
        else:
            break
    if current is not root or hidden or expect != _END or len(items) != 1 or offset != len(text):
        return None
    items[0].parent = None
    return items[0]


def compact(text: str) -> str:
    """Remove whitespace between values, but keep a single space after a colon, so that
    `"state": "open"` can still be found as it was written. NaN and Infinity become `null`.
    """
    packed = _BLANKS.sub(r"\1", text.removeprefix("\ufeff"))
    if "NaN" in packed or "Infinity" in packed:
        packed = _NON_FINITE.sub(lambda match: match.group(1) or "null", packed)
    return packed


_BLANKS = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?+(?:: (?=[^ \t\r\n]))?)|[ \t\r\n]+')
_NON_FINITE = re.compile(r'("[^"\\]*+(?:\\.[^"\\]*+)*+"?+)|NaN|-?Infinity')


LARGE_CHARS = 2_000_000
_READ_CHARS = 800_000
"""The records read in full have at most about this many characters in total; without a question,
they have about half as many."""
_FROM_EVERYWHERE = 0.5
"""The share of `_READ_CHARS` that is reserved for a sample of all records."""
_CHARS_PER_ITEM = 8
"""If the items of a large document are shorter than this on average, as in an array of numbers,
only the beginning of the document is read."""


JSON_KINDS = frozenset(
    {
        TextKind.JSON_ARRAY,
        TextKind.JSON_OBJECT,
        TextKind.JSON_SCALAR,
        TextKind.JSON_LINES,
        TextKind.OPENAPI,
    }
)


def read_json(passage: Passage) -> JsonNode | None:
    """Parse a passage. Returns None if its kind is not a JSON kind or the text is not JSON."""
    if passage.kind == TextKind.JSON_LINES:
        return parse_lines(passage.text, ask(passage.query))
    if passage.kind not in JSON_KINDS:
        return None
    text = passage.text
    if len(text) > LARGE_CHARS and text.count(",") * _CHARS_PER_ITEM < len(text):
        thinned = thin(text, ask(passage.query))
        if thinned is not None:
            return thinned
    return parse(text)


def thin(text: str, question: RelevanceQuestion) -> JsonNode | None:
    """Parse `text`, but only the records that matter.

    Returns None if a part that is read is not JSON, or if no array at the root or one level
    below it makes up most of the text.
    """
    root = _outer(text, 1 if text.lstrip("\ufeff \t\r\n")[:1] == "[" else 2)
    if root is None:
        return None
    arrays = [root] if root.kind == ARRAY else [n for n in root.items if n.kind == ARRAY]
    array = max(arrays, key=lambda node: node.end - node.start, default=None)
    if array is None or 2 * (array.end - array.start) < len(text):
        return None
    selection = _chosen(array.items, text, question)
    array.beyond = len(array.items) - len(selection)
    array.items = []
    for record in selection:
        tree = parse(text[record.start : record.end])
        if tree is None:
            return None
        shift(tree, record.start)
        tree.parent = array
        array.items.append(tree)
    return _read_rest(root, array, text)


def _outer(text: str, depth: int) -> JsonNode | None:
    """Parse `text` down to `depth` (0 is the root). Containers at that depth get no children.

    The contents of such a container are checked only if it is read later.
    """
    root = current = JsonNode(ARRAY, "", 0, len(text), None)
    level = 0
    offset = 1 if text.startswith("\ufeff") else 0
    for match in ITEM.finditer(text, offset):
        offset = match.end()
        token = match.lastindex
        if token is None:
            break
        level -= token == CLOSE
        if level <= depth:
            if token == CLOSE:
                kind = OBJECT if match[CLOSE] == "}" else ARRAY
                if current.parent is None or current.kind != kind:
                    return None
                current.end = match.end(CLOSE)
                current = current.parent
            else:
                kind = SCALAR
                if token == OPEN:
                    kind = OBJECT if match[OPEN] == "{" else ARRAY
                node = JsonNode(kind, match[KEY] or "", *match.span(token), current)
                current.items.append(node)
                current = node if token == OPEN else current
        level += token == OPEN
    if current is not root or len(root.items) != 1 or offset != len(text):
        return None
    root.items[0].parent = None
    return root.items[0]


def _read_rest(root: JsonNode, array: JsonNode, text: str) -> JsonNode | None:
    if root is array:
        return root
    for index, node in enumerate(root.items):
        if node is array or (node.kind not in (OBJECT, ARRAY)):
            continue
        tree = parse(text[node.start : node.end])
        if tree is None:
            return None
        shift(tree, node.start)
        tree.parent, tree.key = root, node.key
        root.items[index] = tree
    return root


def _chosen(records: list[JsonNode], text: str, question: RelevanceQuestion) -> list[JsonNode]:
    starts = [record.start for record in records]
    scores: dict[int, float] = {}
    lowercase = lowered(text) if question else ""
    for term in question.terms:
        matches = {bisect_right(starts, offset) - 1 for offset in places(term, lowercase, text)}
        weight = term.weight * rarity(len(records), len(matches))
        for record in matches:
            scores[record] = scores.get(record, 0.0) + weight
    selection: set[int] = set()
    matching = sorted(scores, key=lambda record: (-scores[record], record))
    _choose(selection, matching, records, _READ_CHARS * (1.0 - _FROM_EVERYWHERE))
    mean = max(1.0, sum(record.end - record.start for record in records) / max(1, len(records)))
    step = max(1, int(len(records) * mean / (_READ_CHARS * _FROM_EVERYWHERE)))
    _choose(selection, range(0, len(records), step), records, float(_READ_CHARS))
    return [records[record] for record in sorted(selection)]


def _choose(
    selection: set[int], order: "list[int] | range", records: list[JsonNode], chars: float
) -> None:
    spent = sum(records[record].end - records[record].start for record in selection)
    for record in order:
        if record < 0 or record in selection:
            continue
        spent += records[record].end - records[record].start
        if spent > chars and selection:
            return
        selection.add(record)


def shift(node: JsonNode, by: int) -> None:
    """Shift the offsets of a tree that was read from a part of a text."""
    stack = [node]
    while stack:
        current = stack.pop()
        current.start += by
        current.end += by
        stack.extend(current.items)


def parse_lines(text: str, question: RelevanceQuestion = NO_QUESTION) -> JsonNode | None:
    """Parse JSON Lines as one array, ignoring blank lines. From a very large text, only the lines
    that matter are read.

    Returns None if one of these lines is not JSON, or if there are no lines.
    """
    root = JsonNode(ARRAY, "", 0, len(text), None)
    records: list[JsonNode] = []
    offset = 0
    for line in text.split("\n"):
        if line.strip():
            records.append(JsonNode(SCALAR, "", offset, offset + len(line), None))
        offset += len(line) + 1
    selection = records
    if len(text) > LARGE_CHARS:
        selection = _chosen(records, text, question)
        root.beyond = len(records) - len(selection)
    for record in selection:
        node = parse(text[record.start : record.end])
        if node is None:
            return None
        shift(node, record.start)
        node.parent = root
        root.items.append(node)
    return root if root.items else None


PIECE_CHARS = 200
LONG_STRING = 320
"""A string longer than this is split into pieces of about `PIECE_CHARS` raw characters."""

_ESCAPE_TAIL = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_LOW_SURROGATE = re.compile(r"\\u[dD][c-fC-F]")
_BREAK = re.compile(r"\\n|[.;,] |\s")


class Outline(Struct):
    """The units of a document, in the order of its text.

    Unit `i` is `text[starts[i]:ends[i]]`. It is piece number `pieces[i]` of the scalar `nodes[i]`;
    the first or only piece has number 0.

    Key paths are numbered. Path `p` consists of path `parents[p]` and the raw key `keys[p]` ("[]"
    for the items of an array), and `below[p]` values have this path. `boxes` contains the
    containers that are not empty, outer containers first. `root` is the tree.
    """

    root: JsonNode
    nodes: list[JsonNode] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=lambda: [""])
    parents: list[int] = field(default_factory=lambda: [-1])
    below: list[int] = field(default_factory=lambda: [0])
    boxes: list[JsonNode] = field(default_factory=list)


def outline(root: JsonNode, text: str) -> Outline:
    """Split the tree `root` of `text` into units, number its key paths, and count its scalars."""
    doc = Outline(root)
    numbers: dict[tuple[int, str], int] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if not node.items:
            _add_units(doc, node, text)
            continue
        doc.boxes.append(node)
        _number_paths(doc, numbers, node)
        stack.extend(reversed(node.items))
    for node in reversed(doc.boxes):
        node.size = sum([child.size for child in node.items])
    return doc


def _number_paths(doc: Outline, numbers: dict[tuple[int, str], int], node: JsonNode) -> None:
    own, nested = node.path, node.nested
    if node.kind == ARRAY:
        number = _number(doc, numbers, (own, "[]"))
        for child in node.items:
            child.path, child.nested = number, True
        return
    for child in node.items:
        step = (own, child.key)
        known = numbers.get(step)
        child.path = _number(doc, numbers, step) if known is None else known
        child.nested = nested


def _number(doc: Outline, numbers: dict[tuple[int, str], int], step: tuple[int, str]) -> int:
    number = numbers.get(step)
    if number is None:
        number = numbers[step] = len(doc.keys)
        doc.keys.append(step[1])
        doc.parents.append(step[0])
        doc.below.append(0)
    return number


def _add_units(doc: Outline, node: JsonNode, text: str) -> None:
    start, end = node.start, node.end
    if end - start <= LONG_STRING or text[start] != '"':
        doc.nodes.append(node)
        doc.starts.append(start)
        doc.ends.append(end)
        doc.pieces.append(0)
        doc.below[node.path] += 1
        return
    for piece, (first, last) in enumerate(pieces_of(text, start + 1, end - 1)):
        doc.nodes.append(node)
        doc.starts.append(first)
        doc.ends.append(last)
        doc.pieces.append(piece)
    doc.below[node.path] += 1


def pieces_of(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Split the inside of a string into pieces. No piece ends inside an escape."""
    spans = []
    offset = start
    while end - offset > PIECE_CHARS * 3 // 2:
        cut = _cut(text, offset, offset + PIECE_CHARS)
        spans.append((offset, cut))
        offset = cut
    spans.append((offset, end))
    return spans


def _cut(text: str, start: int, limit: int) -> int:
    best = 0
    for match in _BREAK.finditer(text, start + PIECE_CHARS // 2, limit):
        if match.group()[0] != "\\" or text[match.start() - 1] != "\\":
            best = match.end()
    if best and not _inside_escape(text, start, best):
        return best
    # A cut must not separate the two escapes of one character, either.
    while _inside_escape(text, start, limit) or _LOW_SURROGATE.match(text, limit):
        limit -= 1
    return limit


def _inside_escape(text: str, start: int, offset: int) -> bool:
    tail = text[max(start, offset - 6) : offset]
    match = _ESCAPE_TAIL.search(tail)
    if not match:
        return False
    slash = offset - (len(tail) - match.start())
    before = slash
    while before > start and text[before - 1] == "\\":
        before -= 1
    return (slash - before) % 2 == 0
