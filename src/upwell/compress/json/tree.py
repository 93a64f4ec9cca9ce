"""Parse JSON into spans of its text, so that numbers, strings and duplicate keys stay as they were
written: `1.10` stays `1.10`.

The parser does not recurse, so a document may be nested 100,000 levels deep.
"""

import re

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
        """Return the scalar as written, except that NaN and Infinity become `null`."""
        raw = text[self.start : self.end]
        if raw in _NOT_JSON:
            return "null"
        return compact(raw) if raw[0] in "[{" else raw


_MOST_DEPTH = 400
_LEAST_NODES, _MOST_NODES, _CHARS_PER_NODE = 20_000, 120_000, 16
"""A document may have one node for each `_CHARS_PER_NODE` characters, but at least `_LEAST_NODES`
and at most `_MOST_NODES`. JSON in tool responses has 25 to 40 characters per node.
"""


def most_nodes(text: str) -> int:
    """Return the maximum number of nodes for a text."""
    return max(_LEAST_NODES, min(_MOST_NODES, len(text) // _CHARS_PER_NODE))


def parse(text: str, limit: int | None = None) -> JsonNode | None:  # noqa: C901, PLR0915 — one hot loop
    """Parse `text`. Returns None if it is not JSON; NaN and Infinity are accepted.

    Time and space are linear in the length of `text`. When there are `limit` nodes (by default
    `most_nodes()`), further items of a container are only counted, in `beyond`. A container below
    `_MOST_DEPTH` levels becomes a single value.
    """
    offset = 1 if text.startswith("\ufeff") else 0
    root = current = JsonNode(ARRAY, "", offset, len(text), None)
    items, is_object, expect = root.items, False, _ITEM
    left = most_nodes(text) if limit is None else limit
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
