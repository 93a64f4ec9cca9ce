"""Lines: plain text, and everything whose lines stand for themselves."""

import math
import re

from upwell.compress.units.base import Units, lines
from upwell.compress.units.marks import Marks

_VARIABLE = re.compile(
    r"\d(?:(?<=0)x[0-9a-fA-F]+|(?<=[0-9])[0-9a-fA-F]{7,}|\d*+)|[a-fA-F][0-9a-fA-F]{7,}"
)
_EDGE = 3
"""Lines at both ends of a text that say how it begins and ends."""


def template(line: str) -> str:
    """What a line looks like with its numbers and hashes taken out."""
    return _VARIABLE.sub("#", line)


def split(text: str, name: str = "") -> Units:
    """Lines, with those that look like many others worth less than the first of their kind."""
    units = Units()
    marks = Marks(text)
    known: dict[str, int] = {}
    for start, end in lines(text):
        line = text[start:end]
        if not line.strip():
            units.add(start, end, -6.0)
            continue
        shape = template(line)[:160]
        known[shape] = seen = known.get(shape, 0) + 1
        rarity = 1.5 if seen == 1 else -min(3.0, 0.5 * math.log2(seen))
        units.add(start, end, marks.worth(start, end) + rarity)
    lift_edges(units)
    return units


def lift_edges(units: Units) -> None:
    """The first and last units say what the whole is."""
    size = len(units)
    for step in range(min(_EDGE, size // 4)):
        units.salience[step] += 1.5
        units.salience[size - 1 - step] += 1.5
