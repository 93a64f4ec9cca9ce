"""Diffs and git logs: lines under their file and hunk, messages under their commit."""

import re

from upwell.compress.units.base import Units, lines
from upwell.compress.units.marks import Marks
from upwell.compress.units.plain import split as split_plain

_FILE = re.compile(r"diff --git |Index: |diff -")
_FILE_MORE = re.compile(
    r"(?:index |new file|deleted file|old mode|new mode|similarity|rename |copy "
    r"|=====|--- |\+\+\+ |Binary )"
)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+")
_COMMIT = re.compile(r"[*|\\/ ]*commit [0-9a-f]{7,40}\b")
_HEADER = re.compile(r"[*|\\/ ]*(?:Author|AuthorDate|Commit|CommitDate|Date|Merge|Reflog): ?")
_STAT = re.compile(r" \S.* \| +(?:\d+|Bin)|\d+ files? changed| \d+ files? changed")


def split_diff(text: str, name: str = "") -> Units:
    """Changed lines before context; each line needs the name of its file and its hunk."""
    units = Units()
    marks = Marks(text)
    file_units: tuple[int, ...] = ()
    hunk: tuple[int, ...] = ()
    in_header = False
    for start, end in lines(text):
        line = text[start:end]
        if _FILE.match(line) or (
            _HUNK.match(line) is None and line.startswith("--- ") and not in_header
        ):
            file_units, hunk, in_header = (units.add(start, end, 3.0),), (), True
        elif in_header and _FILE_MORE.match(line):
            if line.startswith("+++ ") and not _FILE.match(
                text[units.starts[file_units[0]] :][:12]
            ):
                file_units = (*file_units, units.add(start, end, 2.0, file_units))
            else:
                units.add(start, end, -1.5, file_units)
        elif _HUNK.match(line):
            in_header = False
            hunk = (units.add(start, end, 0.5, file_units),)
        else:
            units.add(start, end, _changed(line, marks.worth(start, end)), (*file_units, *hunk))
    return units


def _changed(line: str, worth: float) -> float:
    if len(line.strip()) < 3:
        return -4.0
    return worth + (0.5 if line[0] in "+-" else -1.5)


def split_log(text: str, name: str = "") -> Units:
    """A commit's sha, author and date in one; its message in lines that need them."""
    if not _COMMIT.search(text[:2_000]):
        return split_plain(text, name)
    units = Units(reach=1)
    marks = Marks(text)
    head: tuple[int, ...] = ()
    subject = False
    spans = list(lines(text))
    place = 0
    while place < len(spans):
        start, end = spans[place]
        place += 1
        line = text[start:end]
        if _COMMIT.match(line):
            while place < len(spans) and _is_header(text[slice(*spans[place])]):
                end = spans[place][1]
                place += 1
            head, subject = (units.add(start, end, 0.5),), True
        elif not line.strip():
            units.add(start, end, -6.0)
        else:
            worth = marks.worth(start, end) + (2.5 if subject else -0.5)
            units.add(start, end, worth - (0.5 if _STAT.match(line) else 0.0), head)
            subject = False
    return units


def _is_header(line: str) -> bool:
    return _HEADER.match(line) is not None
