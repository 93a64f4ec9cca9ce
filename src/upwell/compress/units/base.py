"""What a text is made of: units, the smallest things that are kept or left out together."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from upwell.ground.text.safe import boundary

LINES = "lines"
LONG_LINE = 480
PIECE = 240
"""A line longer than `LONG_LINE` characters is taken in pieces of about `PIECE`."""


@dataclass(slots=True)
class Units:
    """Units in order, without gaps: unit `i` is `text[starts[i]:ends[i]]`.

    `salience[i]`: how much an agent needs it when nobody asked. `needs[i]`: units without which
    it makes no sense (its heading, its file, both ends of its fence), outermost first.
    `noun` names what is counted where something is missing. `reach`: how many neighbours on
    each side a match lends some of its worth to; 0 for units that stand for themselves.
    """

    noun: str = LINES
    reach: int = 2
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    salience: list[float] = field(default_factory=list)
    needs: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, start: int, end: int, salience: float, needs: tuple[int, ...] = ()) -> int:
        """Append a unit; returns its number."""
        self.starts.append(start)
        self.ends.append(end)
        self.salience.append(salience)
        self.needs.append(needs)
        return len(self.starts) - 1

    def add_row(
        self, bounds: Sequence[int], salience: Iterable[float], needs: tuple[int, ...] = ()
    ) -> None:
        """Append the units between one bound and the next, all with the same `needs`."""
        self.starts.extend(bounds[:-1])
        self.ends.extend(bounds[1:])
        self.salience.extend(salience)
        self.needs.extend(repeat(needs, len(bounds) - 1))

    def __len__(self) -> int:
        return len(self.starts)


def lines(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """The spans of the lines of `text`, each with its line end; long lines in pieces."""
    stop = len(text) if end is None else end
    at = start
    while at < stop:
        found = text.find("\n", at, stop)
        last = stop if found < 0 else found + 1
        if last - at <= LONG_LINE:
            yield at, last
        else:
            yield from pieces(text, at, last)
        at = last


def pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A span cut at good places where it is long."""
    while end - start > LONG_LINE:
        cut = _cut(text, start)
        yield start, cut
        start = cut
    yield start, end


def _cut(text: str, start: int) -> int:
    """After a tag where there are tags, else after a sentence or word."""
    tag = text.rfind(">", start + PIECE // 2, start + PIECE)
    if tag >= 0 and text.find("<", start, tag) >= 0:
        return tag + 1
    return boundary(text, start, start + PIECE)
