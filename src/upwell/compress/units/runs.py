"""Logs, test output and stack traces: what went wrong, and the first of everything."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from upwell.compress.normalise.logs import HEAD
from upwell.compress.units.base import Units, lines
from upwell.compress.units.marks import Marks
from upwell.compress.units.plain import lift_edges

_PUNCTUATION = ".,:;!?()[]{}<>=\"'"
_TEMPLATE_WORDS, _TEMPLATE_CHARS = 20, 300
_PASSED_FIRST = re.compile(r"\s*+(?:ok\b|[✓✔√])")
_PASSED = re.compile(r"P(?<=\bP)ASS(?:ED)?\b|--- PASS|=== RUN|\.\.\. ok\b|\[ +(?:OK|RUN) ")
"""Searches: each way begins with a letter or sign of its own, which is looked for first; a `\\b`
there would try every place of the line."""
_BLOCK = re.compile(
    r"-{3,} .* -{3,}|={3,} .* ={3,}|_{3,} .* _{3,}|\s*● |--- FAIL|FAIL[: ]|failures:"
)
_DETAIL = re.compile(
    r"\s*(?:E  |>  |assert|left:|right:|expected|actual|received|got|want|thread ')", re.I
)
_RAISED = re.compile(
    r"\S*?(?:Error|Exception|Warning|Interrupt|Exit)\b|Caused by:|Traceback|goroutine"
)
_PANIC = re.compile(r"panic(?:ked|:)")
_FRAME = re.compile(r'\s+(?:at |File "|from )|\s+\S+\.(?:go|rs|py|js|ts):\d+')
_FOREIGN = re.compile(
    r"site-packages|node_modules|dist-packages|/lib/python|node:internal|j(?<=\bj)avax?\.|s(?<=\bs)un\."
    r"|org\.springframework|/usr/|/rustc/|runtime\.|<frozen"
)


def _template(line: str) -> str:
    """The words of a line; whatever is not made of letters alone stands for anything."""
    return " ".join(
        word if word.strip(_PUNCTUATION).isalpha() else "#"
        for word in line.split()[:_TEMPLATE_WORDS]
    )


class Line(NamedTuple):
    """A line of a log. Of a fold (`normalise/logs.py`) it says what its head says as well:
    `head` is the unit of that, and `shape` its words."""

    start: int
    end: int
    shape: str
    needs: tuple[int, ...] = ()


def _lines(text: str) -> Iterator[Line]:
    """The lines of a log, those of a fold under its head. The number of a line is its unit's."""
    left, shape = 0, ""
    needs: tuple[int, ...] = ()
    for number, (start, end) in enumerate(lines(text)):
        if left:
            left -= text[end - 1] == "\n"
            yield Line(start, end, shape, needs)
            continue
        head = HEAD.match(text, start, end) if text.startswith("[", start) else None
        if head is not None:
            left, shape, needs = int(head[1]), head[2], (number,)
        yield Line(start, end, head[2] if head else text[start : min(end, start + _TEMPLATE_CHARS)])


def split_log(text: str, name: str = "") -> Units:
    """Lines; the first of each template, rare ones and trouble before the rest."""
    found = list(_lines(text))
    shapes = [_template(line.shape) for line in found]
    times: dict[str, int] = {}
    for shape in shapes:
        times[shape] = times.get(shape, 0) + 1
    seen: set[str] = set()
    units = Units()
    marks = Marks(text)
    for line, shape in zip(found, shapes, strict=True):
        if not shape:
            units.add(line.start, line.end, -6.0)
            continue
        worth = _worth(marks, line, units) - 0.4 * math.log2(times[shape])
        if shape not in seen:
            seen.add(shape)
            worth += 2.0
        units.add(line.start, line.end, worth, line.needs)
    lift_edges(units)
    return units


def split_tests(text: str, name: str = "") -> Units:
    """Failures with what belongs to them, summaries, then the rest; what passed comes last."""
    units = Units()
    marks = Marks(text)
    trouble = 0
    for line in _lines(text):
        said = line.shape if line.needs else text[line.start : line.end]
        if not said.strip():
            units.add(line.start, line.end, -6.0)
            continue
        worth = _worth(marks, line, units)
        if _PASSED_FIRST.match(said) or _PASSED.search(said):
            worth = -2.0 - 0.5 * math.log2(max(line.end - line.start, 20) / 60)
            trouble = 0
        elif _DETAIL.match(said):
            worth += 2.5
        elif _BLOCK.match(said):
            worth += 1.5
            trouble = 12
        elif trouble:
            worth += 0.8
            trouble -= 1
        units.add(line.start, line.end, worth, line.needs)
    lift_edges(units)
    return units


def _worth(marks: Marks, line: Line, units: Units) -> float:
    """What a line is worth by its words; one of a fold has those of its head too."""
    worth = marks.worth(line.start, line.end)
    for head in line.needs:
        worth = max(worth, marks.worth(units.starts[head], units.ends[head]))
    return worth


def split_trace(text: str, name: str = "") -> Units:
    """What was raised, then frames of the program's own files, then those of libraries."""
    units = Units()
    marks = Marks(text)
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        worth = marks.worth(start, end)
        if _RAISED.match(line) or _PANIC.search(line):
            worth += 3.0
        elif _FRAME.match(line):
            worth += -1.5 if _FOREIGN.search(line) else 1.0
        units.add(start, end, worth)
    lift_edges(units)
    return units
