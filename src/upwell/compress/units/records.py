"""Split tables into rows, and search results into matches."""

import re
from bisect import bisect_left, bisect_right

from upwell.compress.normalise.listings import FILE, FOLDER
from upwell.compress.units.base import BLANK, Marks, Trouble, Units, lines, pieces
from upwell.compress.units.belonging import add_context

_MEMBER = re.compile(r"[ \t]|\d+[:-]")
"""The beginning of an entry in a folder or of a match in a file (`normalise/listings.py`)."""
_CONTEXT = re.compile(r"(?:[^\s:]+?\.[A-Za-z]\w{0,8}-)?\d+-")
"""The beginning of a context line, which a search shows next to its matches (`quay.py-12-`)."""
_EARLY = 2.0
"""`Units.early` for a search with context. It is lower than for matches alone, because otherwise
the context of the first matches would displace the last matches."""
_MAX_JOINED = 50
"""A quoted cell continues for at most this many lines after its first."""


def split_csv(text: str, name: str = "") -> Units:
    """Split CSV into rows, which need the header of their table. A blank line ends a table, and a
    quoted cell may contain line breaks. Rows are ranked by their words and not by their length, so
    that neighbouring rows are selected together and need few omission marks."""
    units = Units(reach=0)
    marks = Marks(text)
    header: tuple[int, ...] = ()
    for start, end in _rows(text):
        row = text[start:end]
        if not row.strip():
            units.add(start, end, -6.0)
            header = ()
            continue
        if not header:
            header = (units.add(start, end, 6.0),)
            continue
        worth = marks.of_words(start, end) + (1.0 if len(units) < 4 else 0.0)
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
    """Split search results into matches. In folded results (`normalise/listings.py`), each match
    needs the line that names its file or folder. A context line usually ranks below the matches
    and needs the nearest match of its group."""
    units = Units(reach=1, by_names=True)
    trouble = Trouble(text)
    matches: list[int] = []
    context: list[int] = []
    groups = [0]
    for start, end in lines(text):
        row = text[start:end]
        if not row.strip() or row.startswith("--"):
            groups.append(units.add(start, end, BLANK))
            continue
        salience = 1.0 if trouble.within(start, end) else 0.0
        if row.rstrip().endswith((FOLDER, FILE)) and not _MEMBER.match(row):
            groups.append(units.add(start, end, BLANK))
            continue
        unit = units.add(start, end, salience)
        (context if _CONTEXT.match(row) else matches).append(unit)
    add_context(units, text)
    if context:
        units.early = _EARLY
        _bind(units, matches, context, groups)
    return units


def _bind(units: Units, matches: list[int], context: list[int], groups: list[int]) -> None:
    for unit in matches:
        units.salience[unit] = max(1.0, units.salience[unit])
    for unit in context:
        group = bisect_right(groups, unit)
        place = bisect_left(matches, unit)
        near = [
            match
            for match in matches[max(0, place - 1) : place + 1]
            if bisect_right(groups, match) == group
        ]
        if near:
            nearest = min(near, key=lambda match: abs(match - unit))
            units.needs[unit] = (*units.needs[unit], nearest)
