"""Lines: plain text, and everything whose lines stand for themselves."""

import math
import re

from upwell.compress.units.base import Units, lines

_TROUBLE = re.compile(
    r"\b(?:error|fail(?:ed|ure|ures)?|fatal|panic(?:ked)?|exception|traceback|critical"
    r"|denied|refused"
    r"|abort(?:ed)?|assert(?:ion)?\w*|segfault|cannot|unable|undefined|not found"
    r"|killed)\b|\bE\d{3,4}\b"
    r"|Error\b|Exception\b|✕|✗|✘",
    re.I,
)
_WARNING = re.compile(r"\bwarn(?:ing)?s?\b|\bdeprecat\w+|\btimed? ?out\b|\bretry", re.I)
_SUMMARY = re.compile(
    r"\b\d+ (?:passed|failed|skipped|ignored|errors?|warnings?|tests?|files? changed|insertions?)\b"
    r"|\btest result\b|^Ran \d+|\btotal\b|\bsummary\b|\bfinished\b"
    r"|\bin \d+(?:\.\d+)? ?m?s\b|\btook\b",
    re.I | re.M,
)
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8,}|\d+")
_EDGE = 3
"""Lines at both ends of a text that say how it begins and ends."""


def template(line: str) -> str:
    """What a line looks like with its numbers and hashes taken out."""
    return _VARIABLE.sub("#", line)


def weight(line: str) -> float:
    """What a line is worth by its words and its length: trouble first, short before long."""
    score = 0.0
    if _TROUBLE.search(line):
        score += 3.0
    elif _WARNING.search(line):
        score += 1.5
    if _SUMMARY.search(line):
        score += 2.0
    return score - 0.5 * math.log2(max(len(line), 20) / 60)


def split(text: str, name: str = "") -> Units:
    """Lines, with those that look like many others worth less than the first of their kind."""
    units = Units()
    known: dict[str, int] = {}
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        shape = template(line)[:160]
        known[shape] = seen = known.get(shape, 0) + 1
        rarity = 1.5 if seen == 1 else -min(3.0, 0.5 * math.log2(seen))
        units.add(start, end, weight(line) + rarity)
    lift_edges(units)
    return units


def lift_edges(units: Units) -> None:
    """The first and last units say what the whole is."""
    size = len(units)
    for step in range(min(_EDGE, size // 4)):
        units.salience[step] += 1.5
        units.salience[size - 1 - step] += 1.5
