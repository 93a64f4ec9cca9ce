"""Split tables and search results: rows need their header, matches stand alone."""

import re

from upwell.compress.units.base import Marks, Units, lines, pieces

_PLACE = re.compile(r"((?:[A-Za-z]:)?[^\s:]+?)[:\-](\d+)[:\-]|((?:[^\s:]+/)+[^\s:]+):")
_MAX_JOINED = 50
"""A quoted cell spans at most this many lines."""


def split_csv(text: str, name: str = "") -> Units:
    """Split CSV into rows, each of which needs the header. A quoted cell may span lines."""
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
    rows: list[tuple[int, int]] = []
    joined_lines = 0
    open_at = -1
    offset = 0
    while offset < len(text):
        mark = text.find("\n", offset)
        end = len(text) if mark < 0 else mark + 1
        has_open_quote = text.count('"', offset, end) % 2 == 1
        begin = offset if open_at < 0 else open_at
        if has_open_quote != (open_at >= 0) and joined_lines < _MAX_JOINED:
            open_at = begin
            joined_lines += 1
        else:
            rows.append((begin, end))
            open_at, joined_lines = -1, 0
        offset = end
    if open_at >= 0:
        rows.append((open_at, len(text)))
    return rows


def split_grep(text: str, name: str = "") -> Units:
    """Split into matches. The first match of a file ranks before its others, to show every file."""
    units = Units(noun="matches", reach=1)
    marks = Marks(text)
    counts: dict[str, int] = {}
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip() or line.startswith("--"):
            units.add(start, end, -6.0)
            continue
        match = _PLACE.match(line)
        file = (match.group(1) or match.group(3)) if match else ""
        counts[file] = count = counts.get(file, 0) + 1
        units.add(
            start, end, marks.worth(start, end) + (1.5 if count == 1 else -0.2 * min(count, 10))
        )
    return units
