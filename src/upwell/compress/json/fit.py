"""Fit a JSON document into a budget: select the values that matter most and write valid JSON.

A unit is a value, or a piece of a long string. Units are selected ("bought") in an order that does
not depend on the budget, until a unit does not fit. Because costs are overestimated, further rounds
spend what is left, and in the end units are tried one by one.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from functools import lru_cache
from math import log2
from statistics import fmean
from typing import Literal

from msgspec.structs import replace

from upwell.compress.base import Fitted, RemainingBudget
from upwell.compress.json.rows import GAP, HEAD, MIN_ROWS, Cell, Tables
from upwell.compress.json.score import described, relevance, salience, with_identities
from upwell.compress.json.tree import (
    ARRAY,
    OBJECT,
    SCALAR,
    JsonNode,
    Outline,
    outline,
    pieces_of,
)
from upwell.compress.json.write import Style, Writer, characters, is_brief
from upwell.compress.order import order
from upwell.compress.relevance import Meaning, RelevanceQuestion
from upwell.ground.text.tokens import weigh
from upwell.ground.types.compression import Omission

MANY = 20
"""In an array with at least this many objects, whole records are selected one by one."""
_LONGEST = 60
"""If the records of an array have more values than this on average, values are selected one by one
instead."""
_LATER, _ENDS, _ODDNESS = 0.25, 1.0, 0.5
"""A record loses `_LATER` of salience each time its position doubles. The first and the last record
gain `_ENDS`. Each record gains `_ODDNESS` times the amount by which its oddest value stands out.
"""
_TIE = 1e-6


def rank_records(doc: Outline, saliences: MutableSequence[float], tables: Tables) -> None:
    """Give all values of a record nearly the same salience, so that records are bought one by one.

    The first record, the last record, and records with an unusual value rank high. Changes
    `saliences`.
    """
    for array in _arrays(doc, tables):
        first, after = bisect_left(doc.starts, array.start), bisect_left(doc.starts, array.end)
        if after - first > _LONGEST * len(array.items):
            continue
        by_path: dict[int, list[float]] = defaultdict(list)
        for unit in range(first, after):
            by_path[doc.nodes[unit].path].append(saliences[unit])
        typical = {path: fmean(worth) for path, worth in by_path.items()}
        average = fmean(saliences[first:after])
        for index, record in enumerate(array.items):
            units = range(
                bisect_left(doc.starts, record.start), bisect_left(doc.starts, record.end)
            )
            oddness = max(
                (saliences[unit] - typical[doc.nodes[unit].path] for unit in units), default=0.0
            )
            last = index == len(array.items) - 1
            position = _ENDS if last or not index else -_LATER * log2(1 + index)
            worth = average + _ODDNESS * oddness + position
            for rank, unit in enumerate(units):
                saliences[unit] = worth - _TIE * (index + rank / 1e3)


def _arrays(doc: Outline, tables: Tables) -> Iterator[JsonNode]:
    end = -1
    for box in doc.boxes:
        if box.kind != ARRAY or len(box.items) < MANY or box.start < end:
            continue
        if tables.of(box) is None and all(item.kind == OBJECT for item in box.items):
            yield box
            end = box.end


_SHORT = 32
_MARK_CHARS, _MARK_TOKENS = 56, 18.0
_CUT_CHARS, _CUT_TOKENS = 14, 7.0
_SMALL_MARK_CHARS, _SMALL_MARK_TOKENS = 20, 8.0


class Basket:
    """The units bought so far, and an estimate of their cost in `chars` and `tokens`."""

    def __init__(
        self, doc: Outline, text: str, style: Style, remaining: RemainingBudget, tables: Tables
    ) -> None:
        self._doc = doc
        self._tables = tables
        self._text = text
        self._style = style
        self._remaining = remaining
        self._counts_tokens = remaining.tokens < math.inf
        self.chars = 0.0
        self.tokens = 0.0
        self._open(doc.root)
        self._pay(style.note)

    def settle(self, text: str) -> None:
        """Replace the estimate with the real cost of `text`, the document written so far."""
        self.chars = self.tokens = 0.0
        self._pay(text)

    def buy(self, order: Sequence[int]) -> list[int]:
        """Buy units in this order until a unit does not fit. Return the units that were bought."""
        bought_units = []
        for unit in order:
            chars, tokens = self.chars, self.tokens
            opened = self._add(unit)
            if self._is_over():
                self._undo(unit, opened)
                self.chars, self.tokens = chars, tokens
                break
            bought_units.append(unit)
        return bought_units

    def give_back(self, unit: int) -> None:
        """Undo the last purchase, which was `unit`."""
        node = self._doc.nodes[unit]
        node.units.remove(unit)
        node = self._tables.put_back(unit) or node
        while (
            not (node.units or node.selected or self._tables.row(node)) and node.parent is not None
        ):
            assert node.parent.selected is not None
            node.parent.selected.remove(node)
            if node.kind != SCALAR:
                node.selected = None
            node = node.parent

    def _add(self, unit: int) -> list[JsonNode]:
        doc, node = self._doc, self._doc.nodes[unit]
        piece = self._text[doc.starts[unit] : doc.ends[unit]]
        cell = self._tables.take(unit, doc.nodes)
        if cell is not None:
            self._head(cell)
            opened = self._open_all(cell.record)
            self._pay(", " + GAP * self._tables.gaps_before(cell))
        else:
            opened = [] if node.units else self._open_all(node)
        if node.units:
            node.units.append(unit)
        else:
            node.units = [unit]
        self._pay(piece)
        if node.end - node.start > len(piece) and len(node.units) == 1:
            self.chars += _CUT_CHARS
            self.tokens += _CUT_TOKENS
        return opened

    def _head(self, cell: Cell) -> None:
        """Pay for the name of a column that has just reached `MIN_ROWS` rows. For the first column,
        also pay for the rest of the table's head."""
        table = cell.table
        if table.depth[cell.column] == MIN_ROWS:
            self._pay(f'"{table.columns[cell.column]}", ')
            if cell.column == 0:
                self._pay(HEAD)

    def _open_all(self, node: JsonNode) -> list[JsonNode]:
        opened = []
        ancestor = node
        while ancestor.parent is not None and (
            ancestor.kind == SCALAR or ancestor.selected is None
        ):
            opened.append(ancestor)
            ancestor = ancestor.parent
        if ancestor.selected is None:
            opened.append(ancestor)
        for box in reversed(opened):
            self._open(box)
            if self._is_over():
                break
        return opened

    def _is_over(self) -> bool:
        return self.chars > self._remaining.chars or self.tokens > self._remaining.tokens

    def _undo(self, unit: int, opened: list[JsonNode]) -> None:
        self._doc.nodes[unit].units.pop()
        self._tables.put_back(unit)
        for box in opened:
            siblings = box.parent.selected if box.parent is not None else None
            if siblings and siblings[-1] is box:
                siblings.pop()
            if box.kind != SCALAR:
                box.selected = None

    def _open(self, node: JsonNode) -> None:
        if node.parent is not None:
            if node.parent.selected is None:
                node.parent.selected = []
            node.parent.selected.append(node)
        if node.key:
            self._pay(node.key + self._style.colon)
        self._pay(", ")
        if not node.items:
            return
        node.selected = []
        self._pay("{}" if node.kind == OBJECT else "[]")
        if node.parent is not None and self._tables.of(node.parent):
            self._pay("[], ")
        if node.nested and node.kind == OBJECT:
            return
        brief = is_brief(node)
        self.chars += _SMALL_MARK_CHARS if brief else _MARK_CHARS
        self.tokens += _SMALL_MARK_TOKENS if brief else _MARK_TOKENS

    def _pay(self, text: str) -> None:
        self.chars += len(text)
        if self._counts_tokens:
            self.tokens += _weigh_short(text) if len(text) < _SHORT else weigh(text)


@lru_cache(maxsize=4096)
def _weigh_short(text: str) -> float:
    """Weigh a short text. Cached, because the same names and brackets recur."""
    return weigh(text)


Emphasis = Literal["values", "fields", "schema"]
"""What is selected first if there is no question: a value of each top-level key (`fields`), a value
of each key path (`schema`), or nothing in particular (`values`)."""

_TIER = 100.0
_SMALL_SCHEMA = 1_500
_LIFT = 2.5
"""If the values that show the schema have at most `_SMALL_SCHEMA` characters in total, they come
first. Otherwise they are raised by `_LIFT` only, and rank behind the names of records."""
_DEEPER = 2.0
"""A top-level key is represented by its value with the highest salience. In this comparison, a
value loses this much for each level below the key, because every level needs brackets."""
_ROUNDS = 6
"""The maximum number of rounds of selection."""
_TRIES = 20
"""How many units are tried one by one at the end. Estimates are too high by amounts that depend on
the round, so without this step a larger budget could select less."""


def fit(
    root: JsonNode,
    text: str,
    question: RelevanceQuestion,
    remaining: RemainingBudget,
    emphasis: Emphasis,
    style: Style,
    meaning: Meaning | None = None,
) -> Fitted:
    """Select the values that matter most within `remaining`.

    `root` is the tree of `text`; the selection is recorded in its nodes. Values that answer
    `question`, or are close to its `meaning`, compete with the values that `emphasis` raises.
    """
    if not root.items:
        return _scalar_within(root, text, remaining)
    doc = outline(root, text)
    saliences = salience(doc, text)
    tables = Tables()
    if not style.lines:
        tables.find(doc, text, saliences)
    rank_records(doc, saliences, tables)
    _emphasise(doc, saliences, emphasis)
    relevances, coverage = relevance(doc, text, question) if question else ({}, 0.0)
    if meaning is not None:
        meaning.add_to(relevances, saliences, lambda unit: described(doc, text, unit))
    costs = [end - start + 8.0 for start, end in zip(doc.starts, doc.ends, strict=True)]
    limit = min(remaining.chars, remaining.tokens * 8.0) * 1.5
    notable = sorted(range(len(saliences)), key=saliences.__getitem__, reverse=True)
    ranked = order(relevances, notable, costs, 0.5 + 0.4 * coverage, limit)
    named = with_identities(doc, ranked, relevances)
    ordered = list(_with_heads(named, relevances, tables.implied))
    basket = Basket(doc, text, style, remaining, tables)

    def write() -> Fitted:
        writer = Writer(doc, text, style, tables)
        return Fitted(writer.write(), writer.omitted)

    fitted = _spend(basket, ordered, remaining, write)
    if remaining.holds(fitted.text):
        return fitted
    return replace(fitted, text="" if style.lines else "{}" if root.kind == OBJECT else "[]")


def _with_heads(
    ordered: Sequence[int], relevances: Mapping[int, float], implied: Mapping[int, int]
) -> Iterator[int]:
    """Leave out the values that the head of a table shows for all rows, unless they answer the
    question. Before such a value, yield its copy in the first row, which the head shows.
    """
    shown: set[int] = set()
    for unit in ordered:
        first = implied.get(unit, unit)
        if first not in shown and (first == unit or unit in relevances):
            shown.add(first)
            yield first
        if first != unit and unit in relevances:
            yield unit


def _spend(
    basket: Basket, ordered: list[int], remaining: RemainingBudget, write: Callable[[], Fitted]
) -> Fitted:
    purchases = basket.buy(ordered)
    fitted = write()
    for _ in range(_ROUNDS - 1):
        if not remaining.holds(fitted.text):
            break
        basket.settle(fitted.text)
        extra = basket.buy(ordered[len(purchases) :])
        if not extra:
            break
        purchases += extra
        fitted = write()
    while purchases and not remaining.holds(fitted.text):
        for _ in range(max(1, len(purchases) // 20)):
            basket.give_back(purchases.pop())
        fitted = write()
    for unit in ordered[len(purchases) :][:_TRIES]:
        basket.settle("")
        if not basket.buy([unit]) or not remaining.holds((larger := write()).text):
            break
        fitted = larger
    return fitted


def _scalar_within(root: JsonNode, text: str, remaining: RemainingBudget) -> Fitted:
    if text[root.start] != '"':
        return Fitted(root.lexeme(text))
    total = characters(text[root.start + 1 : root.end - 1])
    best, left = '""', total
    for _, cut in pieces_of(text, root.start + 1, root.end - 1):
        missing = total - characters(text[root.start + 1 : cut])
        candidate = f'{text[root.start : cut]}…(+{missing:,})"'
        if not missing or not remaining.holds(candidate):
            break
        best, left = candidate, missing
    return Fitted(best, (Omission(what="characters", count=left, total=total),))


def _emphasise(doc: Outline, saliences: list[float], emphasis: Emphasis) -> None:
    if emphasis == "values":
        return
    best: dict[int, tuple[float, int]] = {}
    for unit, node in enumerate(doc.nodes):
        depth = 0
        if emphasis == "schema":
            spot = node.path
        else:
            top = node
            while top.parent is not None and top.parent is not doc.root:
                top = top.parent
                depth += 1
            spot = top.start
        worth = saliences[unit] - _DEEPER * depth
        if spot not in best or worth > best[spot][0]:
            best[spot] = (worth, unit)
    cost = sum(doc.ends[unit] - doc.starts[unit] for _, unit in best.values())
    lift = _LIFT if emphasis == "schema" and cost > _SMALL_SCHEMA else _TIER
    for _, unit in best.values():
        saliences[unit] += lift
