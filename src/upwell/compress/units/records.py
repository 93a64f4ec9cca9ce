"""Tables and search results: rows under their header, matches under their file."""

import re

from upwell.compress.units.base import Units, lines, pieces
from upwell.compress.units.marks import Marks

_PLACE = re.compile(r"((?:[A-Za-z]:)?[^\s:]+?)[:\-](\d+)[:\-]|((?:[^\s:]+/)+[^\s:]+):")
_MAX_JOINED = 50
"""Lines that one quoted cell may span."""


def split_csv(text: str, name: str = "") -> Units:
    """Rows; each needs the header. A row may span lines where a cell is quoted."""
    units = Units(noun="rows", reach=0)
    marks = Marks(text)
    header: tuple[int, ...] = ()
    for start, end in _rows(text):
        row = text[start:end]
        if not row.strip():
            units.add(start, end, -6.0)
            continue
        if not header:
            header = (units.add(start, end, 6.0),)
            continue
        worth = marks.worth(start, end) + (1.0 if len(units) < 4 else 0.0)
        for first, last in pieces(text, start, end):
            units.add(first, last, worth, header)
            worth -= 1.0
    return units


def _rows(text: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    joined = 0
    open_at = -1
    at = 0
    while at < len(text):
        mark = text.find("\n", at)
        end = len(text) if mark < 0 else mark + 1
        odd = text.count('"', at, end) % 2 == 1
        begin = at if open_at < 0 else open_at
        if odd != (open_at >= 0) and joined < _MAX_JOINED:
            open_at = begin
            joined += 1
        else:
            found.append((begin, end))
            open_at, joined = -1, 0
        at = end
    if open_at >= 0:
        found.append((open_at, len(text)))
    return found


def split_grep(text: str, name: str = "") -> Units:
    """Matches; the first of a file before its others, so that every file is seen."""
    units = Units(noun="matches", reach=1)
    marks = Marks(text)
    seen: dict[str, int] = {}
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip() or line.startswith("--"):
            units.add(start, end, -6.0)
            continue
        match = _PLACE.match(line)
        place = (match.group(1) or match.group(3)) if match else ""
        seen[place] = times = seen.get(place, 0) + 1
        units.add(
            start, end, marks.worth(start, end) + (1.5 if times == 1 else -0.2 * min(times, 10))
        )
    return units
