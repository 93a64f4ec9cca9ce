"""Order the units of a text by the names that they bring, for texts that are read for their names.

Code, search results, diffs and the output of commands are used for the identifiers, paths and
numbers in them. A unit is worth the names that no selected unit has shown yet, for the characters
that it takes together with the units that it needs. A unit beside a selected one needs no mark, so
the selection grows in runs of lines. The order does not depend on the budget.

The constants were fitted to tool outputs of recorded agent sessions, and to the names that the
agents used in their next actions; half of the repositories were used to fit, the others to check.
"""

import math
import re
from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import chain

from upwell.compress.units.base import BLANK, Units

_NAME = re.compile(r"[^\W\d]\w*(?:[./-]\w+)*|\d{4,}")
_LEAST_CHARS = 4
_IDENTIFIER = re.compile(r"[\d_./]|[a-z][A-Z]")
_PLAIN_WORD = 0.2
"""The worth of a plain word relative to an identifier, path or number."""
_MARK_CHARS = 8
"""A gap between two units costs a mark."""
_LINE = 0.12
"""The worth of a unit without any new name, so that runs are completed."""
_EARLY, _EARLY_PART = 6.0, 0.3
"""Units of the first `_EARLY_PART` of a text are worth up to `1 + _EARLY` times as much as that."""
_RUN = 0.2
"""The additional worth of a unit for each selected neighbour."""
_LEAST_LINE = 12
"""A shorter unit (a bracket, a blank) is worth nothing without a new name."""


def by_names(units: Units, text: str, limit: float) -> list[int]:
    """Order the units that are worth at most `limit` characters together, best first.

    Each unit comes after the units that it needs. A salience above zero doubles the worth of the
    names of a unit: definitions, errors, changed lines.
    """
    return _Coverage(units, text).order(limit)


class _Coverage:
    def __init__(self, units: Units, text: str) -> None:
        self._units = units
        find: Callable[[str, int, int], list[str]] = _NAME.findall
        spans = zip(units.starts, units.ends, strict=True)
        self._names = [
            {name for name in find(text, start, end) if len(name) >= _LEAST_CHARS}
            for start, end in spans
        ]
        counts = Counter(chain.from_iterable(self._names))
        self._worths = {
            name: math.sqrt(math.log(1 + count))
            * (1.0 if _IDENTIFIER.search(name) else _PLAIN_WORD)
            for name, count in counts.items()
        }
        self._lifts = [2.0 if salience > 0.0 else 1.0 for salience in units.salience]
        self._plain = self._plain_worths()
        self._is_selected = bytearray(len(units))
        self._shown: set[str] = set()

    def _plain_worths(self) -> list[float]:
        """Return the worth of each unit without its names."""
        units, size = self._units, max(1, len(self._units))
        early = _EARLY_PART * size
        return [
            0.0
            if end - start < _LEAST_LINE
            else _LINE * (1.0 + _EARLY * max(0.0, 1.0 - number / early))
            for number, (start, end) in enumerate(zip(units.starts, units.ends, strict=True))
        ]

    def order(self, limit: float) -> list[int]:
        units, is_selected = self._units, self._is_selected
        heap = self._candidates()
        ordered: list[int] = []
        spent = 0.0
        while heap and spent <= limit:
            stale, unit = heappop(heap)
            if is_selected[unit]:
                continue
            density = -self._density(unit)
            if heap and density > heap[0][0] + 1e-9 and density > stale + 1e-9:
                heappush(heap, (density, unit))
                continue
            for member in (*units.needs[unit], unit):
                if not is_selected[member]:
                    is_selected[member] = 1
                    self._shown |= self._names[member]
                    ordered.append(member)
                    spent += units.ends[member] - units.starts[member]
            for neighbour in self._neighbours(unit):
                if not is_selected[neighbour]:
                    heappush(heap, (-self._density(neighbour), neighbour))
        return ordered

    def _candidates(self) -> list[tuple[float, int]]:
        """Return a heap of all units that are not blank, by their density on their own."""
        units, worths = self._units, self._worths
        heap: list[tuple[float, int]] = []
        for number, names in enumerate(self._names):
            if units.salience[number] <= BLANK:
                continue
            worth = self._plain[number] + self._lifts[number] * sum([worths[n] for n in names])
            heap.append((-worth / (units.ends[number] - units.starts[number]), number))
        heapify(heap)
        return heap

    def _density(self, unit: int) -> float:
        """Return the worth of a unit and of the units it needs, for each character they take."""
        units, worths, shown = self._units, self._worths, self._shown
        worth = cost = 0.0
        for member in (*units.needs[unit], unit):
            if self._is_selected[member]:
                continue
            new = sum([worths[name] for name in self._names[member] - shown])
            worth += self._plain[member] + self._lifts[member] * new
            cost += units.ends[member] - units.starts[member] + _MARK_CHARS
        beside = sum([self._is_selected[neighbour] for neighbour in self._neighbours(unit)])
        return worth * (1.0 + _RUN * beside) / max(4.0, cost - _MARK_CHARS * beside)

    def _neighbours(self, unit: int) -> list[int]:
        """Return the nearest unit on each side that is not blank."""
        salience = self._units.salience
        before, after = unit - 1, unit + 1
        while before > 0 and salience[before] <= BLANK:
            before -= 1
        while after < len(salience) - 1 and salience[after] <= BLANK:
            after += 1
        return [number for number in (before, after) if 0 <= number < len(salience)]
