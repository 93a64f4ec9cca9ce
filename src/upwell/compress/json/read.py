"""Parse a JSON passage into a tree. From a very large document, read only the records that matter.

A document's records are the items of the array that makes up most of it. A large document is first
scanned without building nodes below its records. The records that best match the question and a
sample of the others are then read in full; the rest are only counted. The number of records read
does not depend on the budget, so a smaller budget still selects a subset of what a larger one
selects.
"""

import re
from bisect import bisect_right

from upwell.compress.json.tree import ARRAY, CLOSE, ITEM, KEY, OBJECT, OPEN, SCALAR, JsonNode, parse
from upwell.compress.relevance import NO_QUESTION, RelevanceQuestion, ask, lowered, places, rarity
from upwell.ground.types.compression import Passage, TextKind

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
                node = _value(current, match, token)
                current = node if token == OPEN else current
        level += token == OPEN
    if current is not root or len(root.items) != 1 or offset != len(text):
        return None
    root.items[0].parent = None
    return root.items[0]


def _value(parent: JsonNode, match: re.Match[str], token: int) -> JsonNode:
    start, end = match.span(token)
    kind = SCALAR
    if token == OPEN:
        kind = OBJECT if match[OPEN] == "{" else ARRAY
    node = JsonNode(kind, match[KEY] or "", start, end, parent)
    parent.items.append(node)
    return node


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
    records = _lines(text)
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


def _lines(text: str) -> list[JsonNode]:
    records: list[JsonNode] = []
    offset = 0
    for line in text.split("\n"):
        if line.strip():
            records.append(JsonNode(SCALAR, "", offset, offset + len(line), None))
        offset += len(line) + 1
    return records
