"""A JSON document as spans of its own text: numbers, strings and duplicate keys stay as written.

No recursion and no conversion: `1.10` stays `1.10`, a number of thirty digits keeps them all, and
a document nested 100 000 deep is read like any other.
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
"""A value, with its name before and the comma behind it; the begin of a container, with its name;
or the end of one, with the comma behind. Where none of these stands it matches nothing at all, so
that a match always begins where the one before ended."""
KEY, VALUE, OPEN, CLOSE = 1, 2, 3, 4
_NOT_JSON = frozenset({"NaN", "Infinity", "-Infinity"})

_ITEM, _ITEM_OR_END, _END = 0, 1, 2
"""What may come next: after a comma, at the begin of a container, after an item without comma."""
_NO_ITEMS: "list[Node]" = []
_NO_UNITS: list[int] = []
"""Of every scalar, and of every value until a unit of it is taken: most of a tree are scalars that
are not, and a list for each costs more than its node."""


class Node:
    """One value. `start`, `end` its span in the text; `key` the raw lexeme of its name, with
    quotes, "" in an array; `items` its children, empty for a scalar. `size` counts the scalars
    below, `path` numbers the key path, `nested` says that it is in an array. `kept` holds the
    children that a selection has taken, `units` the numbers of those taken of a scalar, `beyond`
    counts children that were never read.
    """

    __slots__ = (
        "beyond", "end", "items", "kept", "key", "kind", "nested", "parent", "path", "size",
        "start", "units",
    )  # fmt: skip

    def __init__(self, kind: int, key: str, start: int, end: int, parent: "Node | None") -> None:
        self.kind = kind
        self.key = key
        self.start = start
        self.end = end
        self.parent = parent
        self.items: list[Node] = [] if kind else _NO_ITEMS
        self.beyond = 0
        self.nested = False
        self.path = 0
        self.size = 1
        self.kept: list[Node] | None = None
        self.units = _NO_UNITS

    def lexeme(self, text: str) -> str:
        """The scalar as written; what strict JSON does not know becomes `null` (seed 002)."""
        raw = text[self.start : self.end]
        return "null" if raw in _NOT_JSON else raw


def parse(text: str) -> Node | None:
    """The tree of `text`, or None where it is not JSON (NaN and Infinity are let through).

    Time and space are linear in the length of `text`.
    """
    at = 1 if text.startswith("\ufeff") else 0
    root = current = Node(ARRAY, "", at, len(text), None)
    items, named, expect = root.items, False, _ITEM
    for match in ITEM.finditer(text, at):
        at = match.end()
        token = match.lastindex
        if token == VALUE or token == OPEN:  # noqa: SIM109 — the hot loop
            key = match[KEY]
            if expect == _END or (key is not None) != named:
                return None
            start, end = match.span(token)
            if token == VALUE:
                items.append(Node(SCALAR, key or "", start, end, current))
                expect = _ITEM if text[at - 1] == "," else _END
                continue
            named, expect = text[start] == "{", _ITEM_OR_END
            current = Node(OBJECT if named else ARRAY, key or "", start, end, current)
            items.append(current)
            items = current.items
        elif token == CLOSE:
            end = match.end(CLOSE)
            wanted = OBJECT if text[end - 1] == "}" else ARRAY
            if expect == _ITEM or current.kind != wanted or current.parent is None:
                return None
            current.end = end
            current = current.parent
            items, named = current.items, current.kind == OBJECT
            expect = _ITEM if end < at else _END
        else:
            break
    if current is not root or expect != _END or len(items) != 1 or at != len(text):
        return None
    items[0].parent = None
    return items[0]


def compact(text: str) -> str:
    """Valid JSON without the blanks between its values; one behind a colon stays where the source
    has it, so that `"state": "open"` is still found as it stood. NaN and Infinity become `null`."""
    packed = _BLANKS.sub(r"\1", text.removeprefix("\ufeff"))
    if "NaN" in packed or "Infinity" in packed:
        packed = _NON_FINITE.sub(lambda found: found.group(1) or "null", packed)
    return packed


_BLANKS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*"(?:: (?=[^ \t\r\n]))?)|[ \t\r\n]+')
_NON_FINITE = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|NaN|-?Infinity')
