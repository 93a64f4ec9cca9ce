"""Finds what a shortened text left out by its marks.

A mark counts the lines or characters that are missing at its place. The marks and the lines between
them therefore give the place of each line in the original, and no line is looked up by its content:
of many equal lines, exactly those that were left out count as left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from upwell.compress.normalise import listings, logs
from upwell.compress.normalise.numbered import without_numbers
from upwell.ground.types.compression import Passage

_LINES = re.compile(r"\[…(\d{1,9})(?:→(\d{1,9})| lines?, \d{1,9} \w{1,20})?\]")
_CHARS = re.compile(r" \[…(\d{1,9}) chars\] ")
_NOTE = re.compile(r"\[[\d,]{1,20} of [\d,]{1,20} ")


class OriginalGap(Struct, frozen=True):
    """A part of the original that was left out: the lines `first` … `last - 1`, or the characters
    `start` … `end - 1` of the line `first`."""

    first: int
    last: int
    start: int = 0
    end: int = 0


def gaps_of(original: str, seen: str) -> list[OriginalGap] | None:
    """The gaps in a shortened text, in order. Lines and characters are counted from 0. Returns None
    if the marks do not add up to the original, as in a summary."""
    rows = original.removesuffix("\n").split("\n")
    *shown, last = seen.removesuffix("\n").split("\n")
    if not (_NOTE.match(last) and " left out" in last and last.endswith("]")):
        return None
    first_line = without_numbers(Passage(text=original)).first_line
    for lines_in in (_one, logs.count_lines, listings.count_lines):
        gaps = _walked(rows, shown, lines_in, 1 if first_line is None else first_line)
        if gaps is not None:
            return gaps
    return None


def _one(line: str) -> int:
    return 1


def _walked(
    rows: Sequence[str], shown: Sequence[str], lines_in: Callable[[str], int], first_line: int
) -> list[OriginalGap] | None:
    """Go through both texts at the same pace. `lines_in()` tells how many lines of the original a
    shown line stands for."""
    gaps: list[OriginalGap] = []
    at = 0
    for line in shown:
        if mark := _LINES.fullmatch(line):
            gaps.append(OriginalGap(at, at + int(mark[1])))
            at += int(mark[1])
            if mark[2] and at + first_line != int(mark[2]):
                return None
            continue
        if line.strip():
            at = _after_blanks(rows, at)
        elif at < len(rows) and rows[at].strip():
            continue
        if at < len(rows):
            gaps += _within(at, rows[at], line)
        at += lines_in(line)
    return gaps if _after_blanks(rows, at) == len(rows) else None


def _after_blanks(rows: Sequence[str], at: int) -> int:
    """Skip empty lines: a text shows only one of several."""
    while at < len(rows) and not rows[at].strip():
        at += 1
    return at


def _within(number: int, row: str, line: str) -> Iterator[OriginalGap]:
    pieces = _CHARS.split(line)
    at = 0
    for piece, missing in zip(pieces[::2], pieces[1::2], strict=False):
        if not row.startswith(piece, at):
            return
        start = at + len(piece)
        at = start + int(missing)
        yield OriginalGap(number, number + 1, start, at)
