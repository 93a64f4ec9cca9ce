"""Units: the smallest parts of a text that are selected or left out as a whole."""

import math
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise

from msgspec import Struct, field

from upwell.compress.relevance import lowered
from upwell.ground.text.safe import boundary

BLANK = -4.0
"""A low salience, for blank lines and for units that matter only because other units need them. If
units are ordered by names (`order.py`), such units are never selected for their own sake."""
FIRST = 50.0
"""The salience of raised units. They are selected before all others or, if units are ordered by
names, from a reserved share of the budget."""
SIGNATURE = 5.0
"""The salience of the signature of a function or a type."""
PIECE = 240
LONG_LINE = 2 * PIECE
"""A line longer than `LONG_LINE` characters is split into pieces of about `PIECE`."""
_MOST_GROUPS, _MOST_PIECES = 16_000, 64_000


class Units(Struct):
    """The units of a text, in its order and without gaps: unit `i` is `text[starts[i]:ends[i]]`.

    `salience[i]`: how much unit `i` matters when there is no question.
    `needs[i]`: the units without which unit `i` makes no sense (its heading, its file, both ends of
    its fenced block), outermost first.
    `by_names`: whether the units are ordered by the names in them (`order.py`). A salience above
    zero then doubles the worth of a unit's names, and the salience `SIGNATURE` quadruples it.
    `raised_share`: with `by_names`, the share of the budget reserved for raised units (salience
    `FIRST` or more).
    `early`: with `by_names`, how much more the first units are worth (see `order.py`).
    `reach`: if a unit matches the question, how many units on each side get a part of its score.
    """

    by_names: bool = False
    raised_share: float = 0.2
    early: float = 8.0
    reach: int = 2
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    salience: list[float] = field(default_factory=list)
    needs: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, start: int, end: int, salience: float, needs: tuple[int, ...] = ()) -> int:
        """Append a unit and return its number."""
        self.starts.append(start)
        self.ends.append(end)
        self.salience.append(salience)
        self.needs.append(needs)
        return len(self.starts) - 1

    def __len__(self) -> int:
        return len(self.starts)


def lines(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield the span of each line of `text`, including its line ending. Long lines are yielded in
    pieces."""
    stop = len(text) if end is None else end
    if start >= stop:
        return iter(())
    sizes = [len(row) + 1 for row in text[start:stop].split("\n")]
    # The last line has no line ending. If the text ends with a line ending, that line is empty.
    sizes[-1] -= 1
    if not sizes[-1]:
        sizes.pop()
    ends = list(accumulate(sizes, initial=start))
    spans = pairwise(ends)
    if max(sizes) <= LONG_LINE:
        return spans
    return chain.from_iterable(
        pieces(text, start, end) if end - start > LONG_LINE else ((start, end),)
        for start, end in spans
    )


def pieces(text: str, start: int, end: int, size: int = PIECE) -> Iterator[tuple[int, int]]:
    """Split a long span at natural places into pieces of about `size`."""
    while end - start > 2 * size:
        tag = text.rfind(">", start + size // 2, start + size)
        is_tag = tag >= 0 and text.find("<", start, tag) >= 0
        cut = tag + 1 if is_tag else boundary(text, start, start + size)
        yield start, cut
        start = cut
    yield start, end


_TROUBLE = [
    *"error fail fatal panic exception traceback critical denied refused abort assert".split(),
    *"segfault cannot unable undefined killed invalid ✕ ✗ ✘ backoff evicted unhealthy".split(),
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
"""The salience that a unit loses each time its length doubles, because short units use the budget
better. The number of doublings is rounded, so that lines of similar length are selected together
and need no omission marks between them.
"""


class Trouble:
    """The places in a text that mention an error."""

    def __init__(self, text: str) -> None:
        self._places = _places(lowered(text), _TROUBLE)

    def within(self, start: int, end: int) -> bool:
        """Return whether `text[start:end]` mentions an error."""
        return self._places[bisect_left(self._places, start)] < end


class Marks:
    """The places in a text that report an error, warn, or summarise."""

    def __init__(self, text: str) -> None:
        lowercase = lowered(text)
        self._trouble = _places(lowercase, _TROUBLE)
        self._warning = _places(lowercase, _WARNING)
        self._summary = _places(lowercase, _SUMMARY)

    def worth(self, start: int, end: int) -> float:
        """Return the salience of `text[start:end]`, based on its words and its length."""
        size = end - start
        cost = _LENGTH_COSTS[size] if size <= LONG_LINE else _length_cost(size)
        return self.of_words(start, end) - cost

    def of_words(self, start: int, end: int) -> float:
        """Return the salience of `text[start:end]`, based on its words."""
        score = 0.0
        if self._trouble[bisect_left(self._trouble, start)] < end:
            score += 3.0
        elif self._warning[bisect_left(self._warning, start)] < end:
            score += 1.5
        if self._summary[bisect_left(self._summary, start)] < end:
            score += 2.0
        return score


def _length_cost(size: int) -> float:
    return _LONG_COSTS * round(math.log2(max(size, 20) / _USUAL_CHARS))


_LENGTH_COSTS = [_length_cost(size) for size in range(LONG_LINE + 1)]


def _places(lowercase: str, words: list[str]) -> list[int]:
    """Return the sorted offsets of `words`, followed by an offset beyond every unit."""
    offsets: list[int] = []
    for word in words:
        offset = lowercase.find(word)
        while offset >= 0 and len(offsets) < _MAX_HITS:
            offsets.append(offset)
            offset = lowercase.find(word, offset + len(word))
    offsets.sort()
    offsets.append(sys.maxsize)
    return offsets


_VARIABLE = re.compile(
    r"\d(?:(?<=0)x[0-9a-fA-F]+|(?<=[0-9])[0-9a-fA-F]{7,}|\d*+)|[a-fA-F][0-9a-fA-F]{7,}"
)
_EDGE = 3
"""This many lines at each end of a text rank higher, because they show how it begins and ends."""


def template(line: str) -> str:
    """Return a line with its numbers and hashes replaced by `#`."""
    return _VARIABLE.sub("#", line)


def split_lines(text: str, name: str = "") -> Units:
    """Split a text into lines. A line that is similar to earlier lines ranks lower."""
    units = Units()
    marks = Marks(text)
    counts: dict[str, int] = {}
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        shape = template(line)[:160]
        counts[shape] = count = counts.get(shape, 0) + 1
        rarity = 1.5 if count == 1 else -min(3.0, 0.5 * math.log2(count))
        units.add(start, end, marks.worth(start, end) + rarity)
    lift_edges(units)
    return units


def split_groups(text: str) -> Units:
    """Split a very long text into about `_MOST_GROUPS` groups of whole lines, and split long groups
    into pieces. There are at most twice `_MOST_PIECES` pieces, so that time and memory stay
    bounded. The first line is raised, because it may be the head of a table.
    """
    units = Units(reach=1)
    marks = Marks(text)
    size = len(text) // _MOST_GROUPS
    piece = max(PIECE, len(text) // _MOST_PIECES)
    first_line = text.find("\n") + 1
    offset = 0
    while offset < len(text):
        end = text.find("\n", offset + size) + 1 if offset else first_line
        for start, stop in pieces(text, offset, end or len(text), piece):
            worth = marks.worth(start, stop) if text[start:stop].strip() else BLANK
            units.add(start, stop, worth)
        offset = units.ends[-1]
    units.salience[0] = FIRST
    lift_edges(units)
    return units


def lift_edges(units: Units, above: float = -math.inf) -> None:
    """Rank the first and the last units of a text higher. Units with a salience up to `above`
    stay as they are, and so do raised units."""
    size = len(units)
    for step in range(min(_EDGE, size // 4)):
        for unit in (step, size - 1 - step):
            if above < units.salience[unit] < FIRST:
                units.salience[unit] += 1.5
