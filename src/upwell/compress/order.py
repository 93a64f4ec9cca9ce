"""The order in which units are selected.

With a question, two orders are merged: units that answer it, and units that matter anyway
(`order()`). Without one, units may be ordered by the names in them (`by_names()`), because agents
use code, search results, diffs and command output for the identifiers, paths and numbers that they
contain. Units are then selected by their worth per character. The worth of a unit comes from names
that no selected unit contains. If a unit needs others, such as the lines that enclose it, their
worth and length are added to its own. A unit next to a selected unit needs no omission mark, so the
selection grows in runs of lines. The order does not depend on the budget.

The constants were fitted to the tool outputs in recorded agent sessions, and to the names that the
agents used in their next actions. Half of the repositories were used for fitting, the other half
for checking.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heappushpop
from itertools import chain, pairwise
from operator import sub

from upwell.compress.units.base import BLANK, SIGNATURE, Units

_NAME = re.compile(r"[^\W\d][\w./-]{2,}\w|\d{4,}")
_ASCII_NAME = re.compile(r"[A-Za-z_][\w./-]{2,}\w|\d{4,}", re.ASCII)
"""The same pattern for ASCII text, almost twice as fast."""
_IDENTIFIER = re.compile(r"[\d_./]|[a-z][A-Z]")
_PLAIN_WORD = 0.2
"""The worth of a plain word relative to an identifier, path or number."""
_LEAST_NAME = 3
_REQUESTED = 3.0
"""The factor for the worth of a name that contains a word from the user's request."""
_REQUEST_CHARS, _LONG_WORD = 2_000, 6
_MARK_CHARS = 8
"""The estimated length of an omission mark, which is added to the length of each unit."""
_LINE = 0.16
"""The worth of a unit apart from its names. Because of it, the selection fills gaps in runs of
lines."""
_EARLY_PART = 0.3
"""The first units of a text, up to this share of all its units, are worth more. `_LINE` is
multiplied by `1 + Units.early` for the first unit, and by less for each later one."""
_RUN = 0.2
"""Each selected neighbour raises the worth of a unit by this share."""
_RAISED, _SIGNATURE = 2.0, 4.0
"""`_RAISED`: the factor for names in definitions, errors and changed lines. `_SIGNATURE`: the
factor for names in the signatures of functions and types."""
_MOST = 1_000
_COMMON = [math.sqrt(math.log(1 + count)) for count in range(_MOST + 1)]
"""`_COMMON[n]` is the worth of a name that `n` units contain. Names that recur matter more."""
_SAME = 1e-9
_NEARLY = 0.8
"""The top unit of the heap is selected if its density (worth per character), once recomputed, is
still at least this share of the next unit's density. The next unit's density has not been
recomputed and is usually too high, so the top unit is usually the best. This saves a third of the
steps.
"""
_LEAST_LINE = 12
"""A unit shorter than this, such as a bracket, is worth nothing unless it contains a new name."""


def by_names(units: Units, text: str, limit: float, request: str = "") -> list[int]:
    """List units, best first, until they fill `limit` characters.

    Each unit comes after the units that it needs, except in a pair of units that need each other.
    Names are worth more if they contain a word from the user's `request`. They are also worth more
    in a unit with a salience above zero, such as a definition, an error or a changed line.
    """
    return _Coverage(units, text, request).order(limit)


def _worths(names: list[set[str]], words: list[str]) -> dict[str, float]:
    counts = Counter(chain.from_iterable(names))
    is_identifier = _IDENTIFIER.search
    worths = {
        name: _COMMON[count if count < _MOST else _MOST]
        * (_PLAIN_WORD if (name.islower() and name.isalpha()) or not is_identifier(name) else 1.0)
        for name, count in counts.items()
    }
    for name in worths if words else ():
        lowercase = name.lower()
        if any([word in lowercase for word in words]):
            worths[name] *= _REQUESTED
    return worths


def _requested(request: str, text: str) -> list[str]:
    words = {
        name.strip("./-").lower()
        for name in _NAME.findall(request[:_REQUEST_CHARS])
        if len(name) >= _LONG_WORD or _IDENTIFIER.search(name)
    }
    lowercase = text.lower() if words else ""
    return sorted(word for word in words if len(word) > _LEAST_NAME and word in lowercase)


_ASCII = bytes(range(128))


def _has_foreign_letters(text: str) -> bool:
    if text.isascii():
        return False
    rest = text.encode("utf-8", "replace").translate(None, _ASCII)
    return any(map(str.isalnum, set(rest.decode("utf-8", "replace"))))


class _Coverage:
    def __init__(self, units: Units, text: str, request: str) -> None:
        self._units = units
        find = (_NAME if _has_foreign_letters(text) else _ASCII_NAME).findall
        self._names = [
            set(find(text, start, end)) if end - start > _LEAST_NAME else set()
            for start, end in zip(units.starts, units.ends, strict=True)
        ]
        self._worths = _worths(self._names, _requested(request, text))
        self._sizes: list[int] = list(map(sub, units.ends, units.starts))
        early = _EARLY_PART * max(1, len(units))
        self._plain = [0.0 if size < _LEAST_LINE else _LINE for size in self._sizes]
        for number in range(int(early)):
            self._plain[number] *= 1.0 + units.early * (1.0 - number / early)
        self._factors = [
            1.0 if salience <= 0.0 else _SIGNATURE if salience == SIGNATURE else _RAISED
            for salience in units.salience
        ]
        self._is_selected = bytearray(len(units))
        self._shown: set[str] = set()
        self._before, self._after = list(range(len(units))), list(range(len(units)))

    def order(self, limit: float) -> list[int]:
        needs, is_selected, sizes = self._units.needs, self._is_selected, self._sizes
        density_of, names, shown = self._density, self._names, self._shown
        heap = self._candidates()
        ordered: list[int] = []
        spent = 0
        item = heappop(heap) if heap else None
        while item is not None and spent <= limit:
            former, unit = item
            if not is_selected[unit]:
                density = -density_of(unit)
                if heap and density > heap[0][0] * _NEARLY and density > former + _SAME:
                    item = heappushpop(heap, (density, unit))
                    continue
                for member in (*needs[unit], unit):
                    if not is_selected[member]:
                        is_selected[member] = 1
                        shown |= names[member]
                        ordered.append(member)
                        spent += sizes[member]
                for neighbour in (self._before[unit], self._after[unit]):
                    if not is_selected[neighbour]:
                        heappush(heap, (-density_of(neighbour), neighbour))
            item = heappop(heap) if heap else None
        return ordered

    def _candidates(self) -> list[tuple[float, int]]:
        """Link each unit that is not blank to its neighbours. Return a heap of these units by
        density. The densities do not yet include the units that each unit needs."""
        worth_of = self._worths.__getitem__
        rows = zip(
            self._units.salience, self._names, self._factors, self._plain, self._sizes, strict=True
        )
        heap = [
            (-(plain + factor * sum(map(worth_of, names))) / (size + _MARK_CHARS), number)
            for number, (salience, names, factor, plain, size) in enumerate(rows)
            if salience > BLANK
        ]
        before, after = self._before, self._after
        for (_, number), (_, following) in pairwise(heap):
            after[number], before[following] = following, number
        heapify(heap)
        return heap

    def _density(self, unit: int) -> float:
        is_selected = self._is_selected
        worth, cost = self._worth(unit), self._sizes[unit] + _MARK_CHARS
        for member in self._units.needs[unit]:
            if not is_selected[member]:
                worth += self._worth(member)
                cost += self._sizes[member] + _MARK_CHARS
        selected_neighbours = is_selected[self._before[unit]] + is_selected[self._after[unit]]
        if selected_neighbours:
            return (
                worth
                * (1.0 + _RUN * selected_neighbours)
                / max(4, cost - _MARK_CHARS * selected_neighbours)
            )
        return worth / cost

    def _worth(self, unit: int) -> float:
        names = self._names[unit]
        if not names:
            return self._plain[unit]
        self._names[unit] = names = names - self._shown
        worth = sum(map(self._worths.__getitem__, names))
        return self._plain[unit] + self._factors[unit] * worth


def order(
    relevances: Mapping[int, float],
    notable: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Return the numbers of units in the order in which to select them.

    `relevances` contains the units that answer the question, with their scores. `notable` lists the
    units that matter without a question, best first. `costs` gives the cost of each unit in
    characters. The relevant units get `share` (0..1) of the budget, and the notable units get the
    rest. Units whose turn comes after `limit` characters are left out.
    """
    answers = sorted(relevances, key=lambda unit: (-relevances[unit], unit))
    return in_parallel(answers, notable, costs, share, limit)


def in_parallel(
    first: Sequence[int],
    second: Sequence[int],
    costs: Sequence[float],
    share: float,
    limit: float,
) -> list[int]:
    """Merge two lists as if a budget were spent on both at the same time. `first` gets `share` of
    the budget, and `second` gets the rest. When one list is exhausted, the other gets everything.
    """
    if not first or share <= 0.0:
        first, share = (), 0.0
    first_cost, second_cost = (sum([costs[unit] for unit in units]) for units in (first, second))
    turns: dict[int, float] = {}
    _schedule(turns, first, costs, share, second_cost, limit)
    _schedule(turns, second, costs, 1.0 - share, first_cost, limit)
    return sorted(turns, key=lambda unit: (turns[unit], unit))


def _schedule(
    turns: dict[int, float],
    units: Sequence[int],
    costs: Sequence[float],
    share: float,
    other_cost: float,
    limit: float,
) -> None:
    """For each unit of one list, record in `turns` how much has been spent on both lists once the
    unit is selected.

    This list gets `share` of the budget until the other list, which costs `other_cost`, is
    exhausted.
    """
    spent = 0.0
    for unit in units:
        spent += costs[unit]
        total = spent / share if share > 0.0 else spent + other_cost
        if total - spent > other_cost:
            total = spent + other_cost
        if total > limit and turns:
            return
        if total < turns.get(unit, total + 1.0):
            turns[unit] = total
