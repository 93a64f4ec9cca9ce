"""Split tables into rows and search results into matches, and split logs, test output and stack
traces, in which failures and first occurrences rank high."""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from upwell.compress.folding import FILE, FOLDER, HEAD
from upwell.compress.units.base import (
    BLANK,
    FIRST,
    Marks,
    Trouble,
    Units,
    lift_edges,
    lines,
    pieces,
)
from upwell.compress.units.belonging import DETAIL, ERROR, WARNING, ReportSalience, add_context

_MEMBER = re.compile(r"[ \t]|\d+[:-]")
"""The beginning of an entry in a folder or of a match in a file (`folding.py`)."""
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
    """Split search results into matches. In folded results (`folding.py`), each match
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


_PUNCTUATION = ".,:;!?()[]{}<>=\"'"
_TEMPLATE_WORDS, _TEMPLATE_CHARS = 20, 300
_REPEATED = 2.0
"""The salience that a line loses each time the number of its occurrences doubles."""


def _template(line: str) -> str:
    return " ".join(
        word if word.strip(_PUNCTUATION).isalpha() else "#"
        for word in line.split()[:_TEMPLATE_WORDS]
    )


class RunLine(NamedTuple):
    """A line of a log or a test run. In a log, lines are compared by their `shape`, which is the
    beginning of the line. In a fold (similar lines under one head line, see `folding.py`),
    the `needs` of every line point to the head, and its shape is the text of the head."""

    start: int
    end: int
    shape: str
    needs: tuple[int, ...] = ()


def _lines(text: str) -> Iterator[RunLine]:
    """Yield the lines of a log. `needs` contains line numbers. These are also unit numbers, because
    each line becomes one unit."""
    left, shape = 0, ""
    needs: tuple[int, ...] = ()
    for number, (start, end) in enumerate(lines(text)):
        if left:
            left -= text[end - 1] == "\n"
            yield RunLine(start, end, shape, needs)
            continue
        head = HEAD.match(text, start, end) if text.startswith("[", start) else None
        if head is not None:
            left, shape, needs = int(head[1]), head[2], (number,)
        yield RunLine(
            start, end, head[2] if head else text[start : min(end, start + _TEMPLATE_CHARS)]
        )


def split_log(text: str, name: str = "") -> Units:
    """Split a log into lines. Errors, rare lines and first occurrences rank high."""
    lines = list(_lines(text))
    shapes = [_template(line.shape) for line in lines]
    counts: dict[str, int] = {}
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1
    seen_shapes: set[str] = set()
    units = Units()
    marks = Marks(text)
    for line, shape in zip(lines, shapes, strict=True):
        if not shape:
            units.add(line.start, line.end, -6.0)
            continue
        worth = _worth(marks, line, units) - 0.4 * math.log2(counts[shape])
        if shape not in seen_shapes:
            seen_shapes.add(shape)
            worth += 2.0
        units.add(line.start, line.end, worth, line.needs)
    add_context(units, text)
    lift_edges(units)
    return units


class _Repeats:
    """Counts the occurrences of lines.

    A detail such as `expected: 0` counts as new in each new failure, even if an earlier failure had
    the same line. If the same failure is reported again, its details are repetitions.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._details: set[str] = set()
        self._is_new_failure = False

    def count(self, line: str) -> int:
        """Count this occurrence of a line, and return the number of its occurrences."""
        self._seen[line] = count = self._seen.get(line, 0) + 1
        return count

    def is_first(self, line: str, role: float) -> bool:
        """Return whether a line is new in its failure. `role` is its salience in the report. Call
        `count()` with the line first."""
        is_new = self._seen[line] == 1
        if role >= ERROR or (role > DETAIL and not is_new):
            self._details, self._is_new_failure = set(), is_new
        if not WARNING < role < DETAIL:
            return is_new
        is_first = is_new or (self._is_new_failure and line not in self._details)
        self._details.add(line)
        return is_first


_PASSED_FIRST = re.compile(r"\s*+(?:ok\b|[✓✔√])")
_PASSED = re.compile(
    r"P(?<=\bP)ASS(?:ED)?\b|--- PASS|=== (?:RUN|PAUSE|CONT)|\.\.\. ok\b|\[ +(?:OK|RUN) "
)
"""Matches a line about a test that passed or started. Each alternative begins with a literal, which
`search` finds quickly; a leading `\\b` would be tried at every offset."""
_PACKAGE = re.compile(r"\s*+(?:ok|FAIL)\s++\S+\s++(?:[\d.]+s|\(cached\))")
"""Matches the result of a Go test package, which is a summary even if the tests passed."""
_BLOCK = re.compile(
    r"-{3,} .* -{3,}|={3,} .* ={3,}|_{3,} .* _{3,}|\s*● |--- FAIL|FAIL[: ]|failures:"
)
_DETAIL = re.compile(
    r"\s*(?:E  |>  |assert|left:|right:|expected|actual|received|got|want|thread ')", re.I
)


def split_tests(text: str, name: str = "") -> Units:
    """Split test output into lines. They rank in this order: how the run ended, failures, other
    results and the details of failures, other lines, passed tests."""
    units = Units()
    marks, report = Marks(text), ReportSalience(text)
    repeats = _Repeats()
    lines_in_failure = 0
    for line in _lines(text):
        words = line.shape if line.needs else text[line.start : line.end]
        if not words.strip():
            units.add(line.start, line.end, -6.0)
            continue
        count = repeats.count(words)
        worth = _worth(marks, line, units) - _REPEATED * math.log2(count)
        role = report.salience(words, len(units))
        if role > 0.0 and repeats.is_first(words, role):
            worth = FIRST + role
            lines_in_failure = 12
        elif _PACKAGE.match(words):
            worth += 2.0
        elif _PASSED_FIRST.match(words) or _PASSED.search(words):
            worth = -2.0 - 0.5 * math.log2(max(line.end - line.start, 20) / 60)
            lines_in_failure = 0
        elif _DETAIL.match(words):
            worth += 2.5
        elif _BLOCK.match(words):
            worth += 1.5
            lines_in_failure = 12
        elif lines_in_failure:
            worth += 0.8
            lines_in_failure -= 1
        units.add(line.start, line.end, worth, line.needs)
    report.raise_last(units)
    add_context(units, text)
    lift_edges(units, above=-2.0)
    return units


def _worth(marks: Marks, line: RunLine, units: Units) -> float:
    worth = marks.worth(line.start, line.end)
    for head in line.needs:
        worth = max(worth, marks.worth(units.starts[head], units.ends[head]))
    return worth


_RAISED = re.compile(
    r"\S*?(?:Error|Exception|Warning|Interrupt|Exit)\b|Caused by:|Traceback|goroutine"
)
_PANIC = re.compile(r"panic(?:ked|:)")
_TRACE_HEAD = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+(?:at |File "|from )|\s+\S+\.(?:go|rs|py|js|ts):\d+')
_FOREIGN = re.compile(
    r"site-packages|node_modules|dist-packages|/lib/python|node:internal|j(?<=\bj)avax?\.|s(?<=\bs)un\."
    r"|org\.springframework|/usr/|/rustc/|runtime\.|<frozen"
)


def split_trace(text: str, name: str = "") -> Units:
    """Split a stack trace into lines. They rank in this order: how the run ended, exceptions and
    errors, frames in the program's own files, frames in libraries. Repeated lines rank lower.
    """
    units = Units()
    marks, report = Marks(text), ReportSalience(text)
    seen: dict[str, int] = {}
    for start, end, shape, needs in _lines(text):
        line = shape if needs else text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        seen[line] = count = seen.get(line, 0) + 1
        worth = marks.worth(start, end) - _REPEATED * math.log2(count)
        if line.startswith(_TRACE_HEAD):
            worth = 0.0
        elif _RAISED.match(line) or _PANIC.search(line):
            worth += 3.0
        elif _FRAME.match(line):
            worth += -1.5 if _FOREIGN.search(line) else 1.0
        role = report.salience(line, len(units))
        units.add(start, end, FIRST + role if role >= ERROR and count == 1 else worth, needs)
    report.raise_last(units)
    add_context(units, text)
    lift_edges(units)
    return units
