"""Documents too large to be read value by value: only the records that matter are.

The text is walked once without building anything below its records (the items of the array that
holds most of it, the lines of JSON Lines). The records that the question speaks of, and some from
everywhere, are then read in full; the others are only counted. How many are read does not depend
on the budget, so a smaller budget still never keeps what a larger one dropped.
"""

import re
from bisect import bisect_right

from upwell.compress.json.tree import ARRAY, CLOSE, ITEM, KEY, OBJECT, OPEN, SCALAR, Node, parse
from upwell.compress.relevance import Question, lowered, places, rarity

LARGE_CHARS = 2_000_000
_READ_CHARS = 800_000
"""Characters of records that are read in full."""
_FROM_EVERYWHERE = 0.5


def thin(text: str, question: Question) -> Node | None:
    """The tree of `text` with the records that matter; None where it is not JSON or has no
    array of records at the top or right below it."""
    root = _outer(text, 1 if text.lstrip("\ufeff \t\r\n")[:1] == "[" else 2)
    if root is None:
        return None
    arrays = [root] if root.kind == ARRAY else [n for n in root.items if n.kind == ARRAY]
    array = max(arrays, key=lambda node: node.end - node.start, default=None)
    if array is None or 2 * (array.end - array.start) < len(text):
        return None
    chosen = _chosen(array.items, text, question)
    array.beyond = len(array.items) - len(chosen)
    array.items = []
    for record in chosen:
        read = parse(text[record.start : record.end])
        if read is None:
            return None
        shift(read, record.start)
        read.parent = array
        array.items.append(read)
    return _read_rest(root, array, text)


def _outer(text: str, depth: int) -> Node | None:
    """The tree of `text` down to `depth` (0 is the root), containers there taken as a whole.
    Checks brackets; what is inside is checked when it is read."""
    root = current = Node(ARRAY, "", 0, len(text), None)
    level = 0
    at = 1 if text.startswith("\ufeff") else 0
    for match in ITEM.finditer(text, at):
        at = match.end()
        token = match.lastindex
        if token is None:
            break
        level -= token == CLOSE
        if level <= depth:
            if token == CLOSE:
                wanted = OBJECT if match[CLOSE] == "}" else ARRAY
                if current.parent is None or current.kind != wanted:
                    return None
                current.end = match.end(CLOSE)
                current = current.parent
            else:
                node = _value(current, match, token)
                current = node if token == OPEN else current
        level += token == OPEN
    if current is not root or len(root.items) != 1 or at != len(text):
        return None
    root.items[0].parent = None
    return root.items[0]


def _value(parent: Node, match: re.Match[str], token: int) -> Node:
    start, end = match.span(token)
    kind = SCALAR
    if token == OPEN:
        kind = OBJECT if match[OPEN] == "{" else ARRAY
    node = Node(kind, match[KEY] or "", start, end, parent)
    parent.items.append(node)
    return node


def _read_rest(root: Node, array: Node, text: str) -> Node | None:
    """Read in full what stands beside the array of records."""
    if root is array:
        return root
    for place, node in enumerate(root.items):
        if node is array or (node.kind not in (OBJECT, ARRAY)):
            continue
        read = parse(text[node.start : node.end])
        if read is None:
            return None
        shift(read, node.start)
        read.parent, read.key = root, node.key
        root.items[place] = read
    return root


def _chosen(records: list[Node], text: str, question: Question) -> list[Node]:
    """The records to read, in their order."""
    starts = [record.start for record in records]
    scores: dict[int, float] = {}
    low = lowered(text) if question else ""
    for term in question.terms:
        found = {bisect_right(starts, at) - 1 for at in places(term, low, text)}
        weight = term.weight * rarity(len(records), len(found))
        for record in found:
            scores[record] = scores.get(record, 0.0) + weight
    taken: set[int] = set()
    asked = sorted(scores, key=lambda record: (-scores[record], record))
    _take(taken, asked, records, _READ_CHARS * (1.0 - _FROM_EVERYWHERE))
    mean = max(1.0, sum(record.end - record.start for record in records) / max(1, len(records)))
    step = max(1, int(len(records) * mean / (_READ_CHARS * _FROM_EVERYWHERE)))
    _take(taken, range(0, len(records), step), records, float(_READ_CHARS))
    return [records[record] for record in sorted(taken)]


def _take(taken: set[int], order: "list[int] | range", records: list[Node], chars: float) -> None:
    spent = sum(records[record].end - records[record].start for record in taken)
    for record in order:
        if record < 0 or record in taken:
            continue
        spent += records[record].end - records[record].start
        if spent > chars and taken:
            return
        taken.add(record)


def shift(node: Node, by: int) -> None:
    """Move a tree that was read from a part of a text to where the part stands."""
    stack = [node]
    while stack:
        one = stack.pop()
        one.start += by
        one.end += by
        stack.extend(one.items)
