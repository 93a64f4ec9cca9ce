"""A JSON document as spans of its own text: numbers, strings and duplicate keys stay as written.

No recursion and no conversion: `1.10` stays `1.10`, a number of thirty digits keeps them all, and
a document nested 100 000 deep is read like any other.
"""

import re

SCALAR, OBJECT, ARRAY = 0, 1, 2

TOKEN = re.compile(
    r'[ \t\r\n]*(?:("[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")'
    r"[ \t\r\n]*(:)?"
    r"|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity)"
    r"|([{\[])|([}\]])|(,))"
)
STRING, KEY, BARE, OPEN, CLOSE = 1, 2, 3, 4, 5
_NOT_JSON = frozenset({"NaN", "Infinity", "-Infinity"})
BLANK = re.compile(r"[ \t\r\n]*\Z")

_VALUE, _KEY_OR_CLOSE, _VALUE_OR_CLOSE, _COMMA, _KEY_NEXT = 0, 1, 2, 3, 4
_SEPARATOR = 6
_ALLOWED = {
    STRING: (_VALUE, _VALUE_OR_CLOSE),
    BARE: (_VALUE, _VALUE_OR_CLOSE),
    OPEN: (_VALUE, _VALUE_OR_CLOSE),
    KEY: (_KEY_OR_CLOSE, _KEY_NEXT),
    CLOSE: (_COMMA, _KEY_OR_CLOSE, _VALUE_OR_CLOSE),
    _SEPARATOR: (_COMMA,),
}
"""What may come next, by what is expected."""


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
        self.items: list[Node] = []
        self.beyond = 0
        self.nested = False
        self.path = 0
        self.size = 1
        self.kept: list[Node] | None = None
        self.units: list[int] = []

    def lexeme(self, text: str) -> str:
        """The scalar as written; what strict JSON does not know becomes `null` (seed 002)."""
        raw = text[self.start : self.end]
        return "null" if raw in _NOT_JSON else raw


def parse(text: str) -> Node | None:
    """The tree of `text`, or None where it is not JSON (NaN and Infinity are let through).

    Time and space are linear in the length of `text`.
    """
    at = 1 if text.startswith("\ufeff") else 0
    root = Node(ARRAY, "", at, len(text), None)
    current, expect, key = root, _VALUE, ""
    items = root.items
    for match in TOKEN.finditer(text, at):
        if match.start() != at:
            return None
        at = match.end()
        token = match.lastindex or 0
        if expect not in _ALLOWED[token]:
            return None
        if token == KEY:
            key, expect = match.group(1), _VALUE
        elif token == STRING or token == BARE:  # noqa: SIM109 — the hot loop
            start, end = match.span(token)
            items.append(Node(SCALAR, key, start, end, current))
            key, expect = "", _COMMA
        elif token == OPEN:
            start = at - 1
            is_object = text[start] == "{"
            node = Node(OBJECT if is_object else ARRAY, key, start, at, current)
            items.append(node)
            current, items, key = node, node.items, ""
            expect = _KEY_OR_CLOSE if is_object else _VALUE_OR_CLOSE
        elif token == CLOSE:
            wanted = OBJECT if text[at - 1] == "}" else ARRAY
            if current.kind != wanted or current.parent is None:
                return None
            current.end = at
            current = current.parent
            items, expect = current.items, _COMMA
        else:
            expect = _KEY_NEXT if current.kind == OBJECT else _VALUE
    if current is not root or len(items) != 1 or not BLANK.match(text, at):
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
