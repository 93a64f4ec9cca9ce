"""A JSON document fitted to a budget: still valid JSON, whatever the budget."""

from typing import Literal

from upwell.compress.fitted import Fitted, Room
from upwell.compress.json.fill import Basket
from upwell.compress.json.outline import Outline, outline
from upwell.compress.json.records import together
from upwell.compress.json.rows import Tables
from upwell.compress.json.score import described, relevance, salience, with_identities
from upwell.compress.json.tree import OBJECT, Node
from upwell.compress.json.write import Style, Writer
from upwell.compress.meaning import Meaning
from upwell.compress.relevance import Question
from upwell.compress.spend import order
from upwell.ground.types import Omission

Emphasis = Literal["values", "fields", "schema"]
"""What comes before all where nobody asked: nothing in particular, a value for every top-level
key, or one value of every key path."""

_TIER = 100.0
_SMALL_SCHEMA = 1_500
_LIFT = 2.5
"""What shows the schema comes first where it takes no more than so many characters; else it comes
before others like it, but not before the names of records."""
_DEEPER = 2.0
"""What a level costs a value that is to stand for its top-level key: each needs its brackets."""
_ROUNDS = 6
"""Costs are estimated from above; what is left over is spent in further rounds. Since no unit
ever costs more than its estimate, a larger budget still gets at least as far."""


def fit(
    root: Node,
    text: str,
    question: Question,
    room: Room,
    emphasis: Emphasis,
    style: Style,
    meaning: Meaning | None = None,
) -> Fitted:
    """Keep the values that matter most, within `room`."""
    if not root.items:
        return Fitted(
            _scalar_within(root, text, room), (Omission(what="characters", count=1, total=1),)
        )
    doc = outline(root, text)
    needed = salience(doc, text)
    tables = Tables()
    if not style.lines:
        tables.find(doc, text, needed)
    together(doc, needed, tables)
    _emphasise(doc, needed, emphasis)
    asked, coverage = relevance(doc, text, question) if question else ({}, 0.0)
    if meaning is not None:
        meaning.add_to(asked, needed, lambda unit: described(doc, text, unit))
    costs = [end - start + 8.0 for start, end in zip(doc.starts, doc.ends, strict=True)]
    share = 0.5 + 0.4 * coverage
    limit = min(room.chars, room.tokens * 8.0) * 1.5
    basket = Basket(doc, text, style, room, tables)
    wanted = with_identities(doc, order(asked, needed, costs, share, limit), asked)
    wanted = [unit for unit in wanted if unit not in tables.implied or unit in asked]
    bought = basket.buy(wanted)
    writer = Writer(doc, text, style, tables)
    result = writer.write()
    for _ in range(_ROUNDS - 1):
        if not room.holds(result):
            break
        basket.settle(result)
        more = basket.buy(wanted[len(bought) :])
        if not more:
            break
        bought += more
        writer = Writer(doc, text, style, tables)
        result = writer.write()
    while bought and not room.holds(result):
        for _ in range(max(1, len(bought) // 20)):
            basket.give_back(bought.pop())
        writer = Writer(doc, text, style, tables)
        result = writer.write()
    if not room.holds(result):
        return Fitted(_empty(root, style), tuple(writer.omitted))
    return Fitted(result, tuple(writer.omitted))


def _empty(root: Node, style: Style) -> str:
    if style.lines:
        return ""
    return "{}" if root.kind == OBJECT else "[]"


def _scalar_within(root: Node, text: str, room: Room) -> str:
    """A document that is a single value: a string is cut, a number is not."""
    from upwell.compress.json.outline import pieces_of

    if text[root.start] != '"':
        return root.lexeme(text)
    best = '""'
    for _, cut in pieces_of(text, root.start + 1, root.end - 1):
        candidate = text[root.start : cut] + '…"'
        if not room.holds(candidate):
            break
        best = candidate
    return best


def _emphasise(doc: Outline, needed: list[float], emphasis: Emphasis) -> None:
    """Lift the units that show the shape of the document above all others."""
    if emphasis == "values":
        return
    best: dict[int, tuple[float, int]] = {}
    for unit, node in enumerate(doc.nodes):
        depth = 0
        if emphasis == "schema":
            place = node.path
        else:
            top = node
            while top.parent is not None and top.parent is not doc.root:
                top = top.parent
                depth += 1
            place = top.start
        worth = needed[unit] - _DEEPER * depth
        if place not in best or worth > best[place][0]:
            best[place] = (worth, unit)
    cost = sum(doc.ends[unit] - doc.starts[unit] for _, unit in best.values())
    lift = _LIFT if emphasis == "schema" and cost > _SMALL_SCHEMA else _TIER
    for _, unit in best.values():
        needed[unit] += lift
