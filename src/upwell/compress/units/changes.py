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
    changes = _Changes(text, units, Marks(text))
    for start, end in lines(text):
        changes.add(start, end, ())
    return units


class _Changes:
    """Lines of a diff, one after the other, on their way into `units`."""

    def __init__(self, text: str, units: Units, marks: Marks) -> None:
        self._text = text
        self._units = units
        self._marks = marks
        self._file: tuple[int, ...] = ()
        self._hunk: tuple[int, ...] = ()
        self._in_header = False

    def begins(self, line: str) -> bool:
        """Does the diff of a file begin here?"""
        return _FILE.match(line) is not None

    def add(self, start: int, end: int, above: tuple[int, ...]) -> None:
        """Take a line; `above` are units that everything here needs (its commit)."""
        line, units = self._text[start:end], self._units
        if self.begins(line) or (line.startswith("--- ") and not self._in_header):
            self._file = (*above, units.add(start, end, 3.0, above))
            self._hunk, self._in_header = (), True
        elif self._in_header and _FILE_MORE.match(line):
            if line.startswith("+++ ") and not self._is_named():
                self._file = (*self._file, units.add(start, end, 2.0, self._file))
            else:
                units.add(start, end, -1.5, self._file)
        elif _HUNK.match(line):
            self._in_header = False
            self._hunk = (units.add(start, end, 0.5, self._file),)
        else:
            worth = _changed(line, self._marks.worth(start, end))
            units.add(start, end, worth, (*self._file, *self._hunk))

    def _is_named(self) -> bool:
        """Does the line that began this file name it already?"""
        begun = self._units.starts[self._file[-1]]
        return self.begins(self._text[begun : begun + 12])


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
    changes: _Changes | None = None
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
            changes = None
        elif changes is not None or line.startswith("diff --git "):
            changes = changes or _Changes(text, units, marks)
            changes.add(start, end, head)
        elif not line.strip():
            units.add(start, end, -6.0)
        else:
            worth = marks.worth(start, end) + (2.5 if subject else -0.5)
            units.add(start, end, worth - (0.5 if _STAT.match(line) else 0.0), head)
            subject = False
    return units


def _is_header(line: str) -> bool:
    return _HEADER.match(line) is not None
