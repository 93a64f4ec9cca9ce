"""Split diffs and git logs. A line of a diff needs the headers of its file and hunk. A line of a
commit message needs the line with the commit's hash."""

import math
import re
from collections import defaultdict

from upwell.compress.units.base import BLANK, FIRST, Marks, Units, lines
from upwell.ground.types.compression import TextKind

_FILE = re.compile(r"diff --git |Index: |diff -")
_FILE_MORE = re.compile(
    r"(?:index |new file|deleted file|old mode|new mode|similarity|rename |copy "
    r"|=====|--- |\+\+\+ |Binary )"
)
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+")
_FILES = re.compile(rf"^(?:{_FILE.pattern})", re.M)
_HUNKS = re.compile(rf"^{_HUNK.pattern}", re.M)
_HASHED = re.compile(r"commit [0-9a-f]{7,40}\b")
_COMMIT = re.compile(rf"[*|\\/ ]*+{_HASHED.pattern}")
_COMMITS = re.compile(rf"^{_COMMIT.pattern}", re.M)
_HEADER = re.compile(r"[*|\\/ ]*(?:Author|AuthorDate|Commit|CommitDate|Date|Merge|Reflog): ?")
_MERGED = re.compile(r" Merge (?:branch|pull|remote|tag)\b")
_STAT = re.compile(r" \S.* \| +(?:\d+|Bin)|\d+ files? changed| \d+ files? changed")


_MESSAGE = "    "
_SUBJECT, _HEADER_WORTH, _EARLIER, _MERGE, _FILE_WORTH = 4.0, 0.5, 0.15, 2.0, 1.0
"""A commit's subject has a salience of `_SUBJECT`, and its author and date have `_HEADER_WORTH`. A
changed file ranks `_FILE_WORTH` above the rest of the message.
Each doubling of the commit's position in the log costs the subject `_EARLIER`. A default merge
message loses `_MERGE`, because it names only branches.
"""


def split_diff(text: str, name: str = "") -> Units:
    """Split a diff into lines. Changed lines rank before context."""
    units = Units(by_names=True)
    diff = _Changes(text, units)
    for start, end in lines(text):
        diff.add(start, end, ())
    _pair(units, text)
    return units


def _pair(units: Units, text: str) -> None:
    """Link each removed line to the added line that replaces it, so that neither is kept alone."""
    removed: list[int] = []
    added: list[int] = []
    for unit, start in enumerate(units.starts):
        sign = text[start]
        if sign == "+" and removed:
            added.append(unit)
            continue
        if added:
            _pair_block(units, text, removed, added)
            removed, added = [], []
        if sign == "-":
            removed.append(unit)
        else:
            removed = []
    if added:
        _pair_block(units, text, removed, added)


def _pair_block(units: Units, text: str, removed: list[int], added: list[int]) -> None:
    """Pair the first removed line of a change with its first added line, and so on. If one side has
    more lines, first pair lines that begin with the same word; they may be two versions of a list
    entry."""
    if len(removed) == len(added):
        for old, new in zip(removed, added, strict=True):
            _bind(units, old, new)
        return
    places = defaultdict[str, list[int]](list)
    for unit in reversed(added):
        places[_first_word(units, text, unit)].append(unit)
    partners = {}
    for unit in removed:
        if same := places[_first_word(units, text, unit)]:
            partners[unit] = same.pop()
    paired = set(partners.values())
    rest = (unit for unit in added if unit not in paired)
    for unit in removed:
        partner = partners[unit] if unit in partners else next(rest, None)
        if partner is not None:
            _bind(units, unit, partner)


def _bind(units: Units, old: int, new: int) -> None:
    units.needs[new] = (*units.needs[new], old)
    units.needs[old] = (*units.needs[old], new)


def _first_word(units: Units, text: str, unit: int) -> str:
    words = text[units.starts[unit] + 1 : units.ends[unit]].split(maxsplit=1)
    return words[0] if words else ""


class _Changes:
    def __init__(self, text: str, units: Units) -> None:
        self._text = text
        self._units = units
        self._file: tuple[int, ...] = ()
        self._hunk: tuple[int, ...] = ()
        self._in_header = False

    def begins(self, line: str) -> bool:
        """Return whether `line` begins the diff of a file."""
        return _FILE.match(line) is not None

    def add(self, start: int, end: int, above: tuple[int, ...]) -> None:
        """Add a line. `above` contains the units that must be kept along with any line of the diff
        (the line with its commit)."""
        line, units = self._text[start:end], self._units
        if self.begins(line) or (line.startswith("--- ") and not self._in_header):
            self._file = (*above, units.add(start, end, 3.0, above))
            self._hunk, self._in_header = (), True
        elif self._in_header and _FILE_MORE.match(line):
            if line.startswith("+++ ") and not self._is_named():
                self._file = (*self._file, units.add(start, end, 2.0, self._file))
            else:
                units.add(start, end, BLANK, self._file)
        elif _HUNK.match(line):
            self._in_header = False
            self._hunk = (units.add(start, end, 0.5, self._file),)
        else:
            units.add(start, end, _line_worth(line), (*self._file, *self._hunk))

    def _is_named(self) -> bool:
        """Return whether the first line of the file's diff contains the name of the file."""
        start = self._units.starts[self._file[-1]]
        return self.begins(self._text[start : start + 12])


def _line_worth(line: str) -> float:
    if len(line.strip()) < 3:
        return BLANK
    return 0.5 if line[0] in "+-" else -1.0


def parts(text: str, kind: TextKind) -> str:
    """Count the commits that begin in this part of a git log or diff, as in `2 commits`. If there
    are none, count the files instead, or else the hunks. Returns "" if nothing begins here."""
    for pattern, noun in ((_COMMITS, "commit"), (_FILES, "file"), (_HUNKS, "hunk")):
        count = 0 if noun == "commit" and kind == TextKind.DIFF else len(pattern.findall(text))
        if count:
            return f"{count} {noun}{'s' * (count > 1)}"
    return ""


def split_log(text: str, name: str = "") -> Units:
    """Split a git log. The units of a commit are the line with its hash, the rest of its header,
    and each line of its message. Subjects rank first, and recent subjects before older ones. The
    files below a message need its subject, too.
    """
    if not _HASHED.search(text[:2_000]):
        return _split_titles(text)
    units = Units(reach=1)
    marks = Marks(text)
    head: tuple[int, ...] = ()
    title: tuple[int, ...] = ()
    subject = False
    commits = 0
    diff: _Changes | None = None
    spans = list(lines(text))
    index = 0
    while index < len(spans):
        start, end = spans[index]
        index += 1
        line = text[start:end]
        if _COMMIT.match(line):
            head, title, subject = (units.add(start, end, BLANK),), (), True
            diff = None
            first = index
            while index < len(spans) and _HEADER.match(text[slice(*spans[index])]):
                index += 1
            if index > first:
                units.add(spans[first][0], spans[index - 1][1], _HEADER_WORTH, head)
            commits += 1
        elif diff is not None or line.startswith("diff --git "):
            if diff is None:
                units.by_names = True
                diff = _Changes(text, units)
            diff.add(start, end, head)
        elif not line.strip():
            units.add(start, end, -6.0)
        else:
            worth = -0.5
            if subject:
                is_merge = line.lstrip().startswith("Merge ")
                worth = _SUBJECT - _EARLIER * math.log2(commits) - _MERGE * is_merge
            worth += marks.worth(start, end)
            is_message = line.startswith(_MESSAGE)
            needs = head if is_message or subject else (*head, *title)
            unit = units.add(start, end, worth + (_FILE_WORTH if _STAT.match(line) else 0.0), needs)
            title, subject = ((unit,) if subject else title), False
    _raise_titles(units)
    return units


def _raise_titles(units: Units) -> None:
    """If there is a diff below commits, let their subjects rank before it."""
    if not units.by_names:
        return
    for unit, salience in enumerate(units.salience):
        if salience > _SUBJECT - _MERGE and not units.needs[unit][1:]:
            units.salience[unit] += FIRST


def _split_titles(text: str) -> Units:
    """Split a log with one line for each commit. Recent commits rank first."""
    units = Units(reach=1)
    for number, (start, end) in enumerate(lines(text), 1):
        is_merge = _MERGED.search(text, start, end) is not None
        worth = _SUBJECT - _EARLIER * math.log2(number) - _MERGE * is_merge
        units.add(start, end, worth if text[start:end].strip() else BLANK)
    return units
