"""Take the line numbers off a file that a tool numbered, and remember where they began.

The code can then be recognised, quoted and edited directly; marks name the lines that are missing.
"""

import re
from dataclasses import replace

from upwell.ground.types.compression import Passage

_ROW = re.compile(r"\A[ \t]*+(\d{1,7})(→|\t|:)")
_LEAST_ROWS = 5
_MOST = 0.8


def without_numbers(passage: Passage) -> Passage:
    """Return the passage without its line numbers, or the same passage when it has none.

    The numbers must count up by one without a gap. Other lines may come before and after. Where
    they do not begin with 1, the first line keeps its number.
    """
    rows = passage.text.split("\n")
    begin = next((index for index, row in enumerate(rows[:4]) if _ROW.match(row)), None)
    match = _ROW.match(rows[begin]) if begin is not None else None
    if begin is None or match is None:
        return passage
    first, sign = int(match[1]), match[2]
    plain = rows[:begin]
    for number, row in enumerate(rows[begin:], first):
        head, _, rest = row.partition(sign)
        if head.strip() != str(number):
            break
        plain.append(rest)
    count = len(plain) - begin
    others = rows[len(plain) :]
    if count < max(_LEAST_ROWS, _MOST * len(rows)) or any(_ROW.match(row) for row in others):
        return passage
    if first != 1:
        plain[begin] = rows[begin]
    return replace(passage, text="\n".join([*plain, *others]), first_line=first - begin)


def plain_start(passage: Passage) -> str:
    """Return the text without the number that its first line has kept."""
    return _ROW.sub("", passage.text, 1) if passage.first_line is not None else passage.text
