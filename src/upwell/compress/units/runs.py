"""Logs, test output and stack traces: what went wrong, and the first of everything."""

import math
import re

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


def split_log(text: str, name: str = "") -> Units:
    """Lines; the first of each template, rare ones and trouble before the rest."""
    spans = list(lines(text))
    shapes = [_template(text[start : min(end, start + _TEMPLATE_CHARS)]) for start, end in spans]
    times: dict[str, int] = {}
    for shape in shapes:
        times[shape] = times.get(shape, 0) + 1
    seen: set[str] = set()
    units = Units()
    marks = Marks(text)
    for (start, end), shape in zip(spans, shapes, strict=True):
        if not shape:
            units.add(start, end, -6.0)
            continue
        worth = marks.worth(start, end) - 0.4 * math.log2(times[shape])
        if shape not in seen:
            seen.add(shape)
            worth += 2.0
        units.add(start, end, worth)
    lift_edges(units)
    return units


def split_tests(text: str, name: str = "") -> Units:
    """Failures with what belongs to them, summaries, then the rest; what passed comes last."""
    units = Units()
    marks = Marks(text)
    trouble = 0
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        worth = marks.worth(start, end)
        if _PASSED_FIRST.match(line) or _PASSED.search(line):
            worth = -2.0 - 0.5 * math.log2(max(len(line), 20) / 60)
            trouble = 0
        elif _DETAIL.match(line):
            worth += 2.5
        elif _BLOCK.match(line):
            worth += 1.5
            trouble = 12
        elif trouble:
            worth += 0.8
            trouble -= 1
        units.add(start, end, worth)
    lift_edges(units)
    return units


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
