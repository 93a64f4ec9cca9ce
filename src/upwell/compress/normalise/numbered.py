"""Take the line numbers off a file that a tool numbered, and remember where they began.

The code can then be recognised, quoted and edited directly; marks name the lines that are missing.
"""

import re
from dataclasses import replace

from upwell.ground.types.compression import Passage

_ROW = re.compile(r"[ \t]*+(\d{1,7})(?:→|\t|\|[ ]?|\Z)")
_LEAST_ROWS = 5
_MOST = 0.8


def without_numbers(passage: Passage) -> Passage:
    """Return the passage without its line numbers, or the same passage when it has none.

    The numbers must count up by one without a gap. Other lines may come before and after. Where
    they do not begin with 1, the first line keeps its number.
    """
    head = passage.text.lstrip("\n")[:400]
    if not any(_ROW.match(row) for row in head.split("\n")[:4]):
        return passage
    rows = passage.text.split("\n")
    matches = [_ROW.match(row) for row in rows]
    numbered = [index for index, match in enumerate(matches) if match]
    if len(numbered) < max(_LEAST_ROWS, _MOST * len(rows)):
        return passage
    first, last = numbered[0], numbered[-1]
    if last - first + 1 != len(numbered):
        return passage
    offset = 0
    for index in numbered:
        match = matches[index]
        assert match is not None
        number = int(match[1])
        if index == first:
            offset = number - first
        elif number != index + offset:
            return passage
        if index > first or number == 1:
            rows[index] = rows[index][match.end() :]
    return replace(passage, text="\n".join(rows), first_line=offset)


def plain_start(passage: Passage) -> str:
    """Return the text without the number that its first line has kept."""
    return _ROW.sub("", passage.text, 1) if passage.first_line is not None else passage.text
