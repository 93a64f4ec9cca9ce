"""Remove the numbers that a tool put before the lines of a file, and remember the first number.

Without the numbers, the code can be recognised, quoted and edited. Omission marks give the numbers
of the missing lines.
"""

import re

from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import Passage, TextKind

_ROW = re.compile(r"\A[ \t]*+(\d{1,7})(→|\t|:)")
_LEAST_ROWS = 5
_MOST = 0.8
_RANGE = re.compile(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*")


def without_numbers(passage: Passage) -> Passage:
    """Return the passage without its line numbers, or the same passage if it has none.

    The numbers must be consecutive, except in a diff. Lines without a number may come before and
    after the numbered lines. If the numbers do not begin with 1, the first line keeps its number.
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
        if head.lstrip() != str(number) and head.strip() != str(number):
            break
        plain.append(rest)
    count = len(plain) - begin
    others = rows[len(plain) :]
    if count < max(_LEAST_ROWS, _MOST * len(rows)) or any(_ROW.match(row) for row in others):
        return _diff_without_numbers(passage, rows, sign)
    if first != 1:
        plain[begin] = rows[begin]
    return replace(passage, text="\n".join([*plain, *others]), first_line=first - begin)


def _diff_without_numbers(passage: Passage, rows: list[str], sign: str) -> Passage:
    """Remove the line numbers from a diff; they may have gaps. Returns the same passage if it is
    not a diff.

    Without the numbers, the diff can be recognised by the first character of its lines. The line
    after a gap keeps its number. Nobody edits a diff by its line numbers, so omission marks do not
    give them.
    """
    if sign == ":":
        return passage
    plain: list[str] = []
    expected = 0
    for row in rows:
        match = _ROW.match(row)
        number = int(match[1]) if match and match[2] == sign else expected
        is_next = match is not None and match[2] == sign and expected in (0, number)
        plain.append(row[match.end() :] if match and is_next else row)
        expected = number + 1 if match else expected
    text = "\n".join(plain)
    return replace(passage, text=text) if detect(text) == TextKind.DIFF else passage


def plain_start(passage: Passage) -> str:
    """Return the text without the number that its first line kept."""
    return _ROW.sub("", passage.text, 1) if passage.first_line is not None else passage.text


def lines_of(text: str, first: int, last: int) -> str:
    """Return the lines `first` to `last` of `text`. If a tool numbered the lines, use its numbers;
    otherwise count from 1. Omission marks use the same numbers.
    """
    numbered_from = without_numbers(Passage(text=text)).first_line
    begin = 1 if numbered_from is None else numbered_from
    rows = text.split("\n")
    return "\n".join(rows[max(0, first - begin) : max(0, last + 1 - begin)])


def line_range(lines: str) -> tuple[int, int]:
    """Parse a range of lines such as `120-180`, or a single line number.

    Raises:
        UsageError: `lines` is neither.
    """
    match = _RANGE.fullmatch(lines)
    first = int(match[1]) if match else 0
    last = int(match[2] or match[1]) if match else 0
    if not 1 <= first <= last:
        raise UsageError(f"{lines!r} is not a range of lines", hint="write it like 120-180")
    return first, last
