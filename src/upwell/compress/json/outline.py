"""Split a JSON document into units: scalars with their key paths, and pieces of long strings."""

import re

from msgspec import Struct, field

from upwell.compress.json.tree import ARRAY, JsonNode

PIECE_CHARS = 200
LONG_STRING = 320
"""A string longer than this is split into pieces of about `PIECE_CHARS` raw characters."""

_ESCAPE_TAIL = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
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
    while _inside_escape(text, start, limit) or _low_surrogate(text, limit):
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


def _low_surrogate(text: str, offset: int) -> bool:
    """Return whether a cut at `offset` would separate the two escapes of one character."""
    return re.match(r"\\u[dD][c-fC-F]", text[offset : offset + 4]) is not None
