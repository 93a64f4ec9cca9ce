"""Where a text speaks of trouble, warns, or sums up: found once for the whole text."""

import math
import sys
from bisect import bisect_left

from upwell.compress.relevance import lowered
from upwell.compress.units.base import LONG_LINE

_TROUBLE = [
    *"error fail fatal panic exception traceback critical denied refused abort assert".split(),
    *"segfault cannot unable undefined killed invalid ✕ ✗ ✘".split(),
    "not found",
    "timed out",
]
_WARNING = ["warn", "deprecat", "retry", "timeout"]
_SUMMARY = [
    " passed", " failed", " skipped", " ignored", "test result", "total", "summary", "finished",
    "files changed", " took ", "files found", "tests run", "results",
]  # fmt: skip
_MAX_HITS = 50_000
_USUAL_CHARS = 60
_LONG_COSTS = 0.5
"""How much a unit loses with each doubling of its length: what is short buys more. In whole steps,
so that lines of about one length stay together and need no marks between them."""


class Marks:
    """The marks of one text."""

    def __init__(self, text: str) -> None:
        low = lowered(text)
        self._trouble = _places(low, _TROUBLE)
        self._warning = _places(low, _WARNING)
        self._summary = _places(low, _SUMMARY)

    def worth(self, start: int, end: int) -> float:
        """What `text[start:end]` is worth by its words and its length: trouble first, short
        before long."""
        score = 0.0
        if self._trouble[bisect_left(self._trouble, start)] < end:
            score += 3.0
        elif self._warning[bisect_left(self._warning, start)] < end:
            score += 1.5
        if self._summary[bisect_left(self._summary, start)] < end:
            score += 2.0
        size = end - start
        return score - (_LENGTH_COSTS[size] if size <= LONG_LINE else _length_cost(size))


def _length_cost(size: int) -> float:
    return _LONG_COSTS * round(math.log2(max(size, 20) / _USUAL_CHARS))


_LENGTH_COSTS = [_length_cost(size) for size in range(LONG_LINE + 1)]


def _places(low: str, words: list[str]) -> list[int]:
    """Where one of `words` begins, in order, and behind the last a place that is in no unit."""
    found: list[int] = []
    for word in words:
        at = low.find(word)
        while at >= 0 and len(found) < _MAX_HITS:
            found.append(at)
            at = low.find(word, at + len(word))
    found.sort()
    found.append(sys.maxsize)
    return found
