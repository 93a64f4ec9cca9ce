"""What a document says in one piece: a sentence over all its lines, a row of a table, a line of
code. Citations name whole statements, however their author wrapped them."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from upwell.ground.text.sections import (
    BLANK,
    FENCE,
    HEADING,
    ITEM,
    PARAGRAPH,
    SENTENCE_END,
    TABLE,
    Block,
    blocks,
)  # fmt: skip
from upwell.ground.text.words import STOP_WORDS

MARK = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
WRAP_CHARS = 60
"""Nobody wraps prose more narrowly; where shorter lines follow each other, each is a statement."""
_RULE = re.compile(r"[ \t|:-]+")
_HARD_BREAK = ("  ", "\\", "<br>", "<br/>")
_GOES_ON = (",", ";", "(", "[", "{", "/", "-", "–", "—", "&", "+", "=")


@dataclass(frozen=True, slots=True)
class Statement:
    """`text[start:end]`, which stands in the lines `first` to `last` (from 0). `until` is the last
    line of what it announces: what stands behind its colon, the rows below it; else `last`. `head`
    is the head of the table that it is a row of."""

    start: int
    end: int
    first: int
    last: int
    until: int
    is_heading: bool = False
    head: str = ""


def statements(text: str) -> list[Statement]:
    """The statements of `text`, in order; blank lines and rules of tables are in none."""
    begins = list(accumulate((len(row) + 1 for row in text.split("\n")), initial=0))[:-1]

    def line(at: int) -> int:
        return bisect_right(begins, at) - 1

    found = blocks(text)
    made: list[Statement] = []
    for number, block in enumerate(found):
        pieces = list(_spoken(text, _pieces(text, block)))
        head = _head(text, pieces) if block.what == TABLE else ""
        for place, (start, end) in enumerate(pieces):
            if head and place == 1:
                continue
            until = line(end - 1)
            if head and place == 0:
                until = line(pieces[-1][1] - 1)
            elif place == len(pieces) - 1 and text[end - 1] == ":":
                until = max(until, line(_announced(text, found, number) - 1))
            said_by = head if place else ""
            is_heading = block.what == HEADING
            made.append(
                Statement(start, end, line(start), line(end - 1), until, is_heading, said_by)
            )
    return made


def _head(text: str, rows: Sequence[tuple[int, int]]) -> str:
    """The first row of a table, if the second one is a rule."""
    if len(rows) > 1 and _RULE.fullmatch(text, *rows[1]):
        return text[slice(*rows[0])]
    return ""


def _pieces(text: str, block: Block) -> Iterable[tuple[int, int]]:
    if block.what == BLANK:
        return ()
    if block.what == HEADING:
        return ((block.start, block.end),)
    rows = list(_rows(text, block))
    if block.what in (FENCE, TABLE):
        return rows
    return pairwise([block.start, *sorted(_ends(text, block, rows)), block.end])


def _ends(text: str, block: Block, rows: Sequence[tuple[int, int]]) -> set[int]:
    """Where a statement of a paragraph or item ends before the block does."""
    mark = MARK.match(text, block.start, block.end) if block.what == ITEM else None
    begin = mark.end() if mark else block.start
    ends = {match.end() for match in SENTENCE_END.finditer(text, begin, block.end)}
    width = max(WRAP_CHARS, *(len(text[start:end].rstrip()) for start, end in rows))
    for (start, end), (_, after) in pairwise(rows):
        if _is_meant(text[start:end], text[end:after], width):
            ends.add(end)
    return ends - {block.end}


def _is_meant(row: str, following: str, width: int) -> bool:
    """Did the author end a line here for its own sake? Wrapping would not: the next word would
    have fitted, it begins something, and the line does not hang in the air."""
    row = row.rstrip("\r\n")
    if row.endswith(_HARD_BREAK):
        return True
    said, ahead = row.split(), following.split()
    if not said or not ahead or len(row.rstrip()) + 1 + len(ahead[0]) > width:
        return False
    hangs = said[-1].lower() in STOP_WORDS or said[-1].endswith(_GOES_ON)
    return not hangs and not ahead[0][0].islower()


def _announced(text: str, found: Sequence[Block], number: int) -> int:
    """Where that ends which stands directly behind the colon at the end of this block."""
    block = found[number]
    behind = [one for one in found[number + 1 :] if one.what != BLANK]
    if behind and behind[0].what in (FENCE, TABLE):
        return _said_until(text, behind[0])
    end = _said_until(text, block)
    for one in behind:
        deeper = block.what == PARAGRAPH or _indent(text, one) > _indent(text, block)
        if one.what != ITEM or not deeper:
            break
        end = _said_until(text, one)
    return end


def _indent(text: str, block: Block) -> int:
    row = text[block.start : block.end]
    return len(row) - len(row.lstrip(" \t"))


def _said_until(text: str, block: Block) -> int:
    return block.start + len(text[block.start : block.end].rstrip())


def _spoken(text: str, pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Without the space around them."""
    for start, end in pieces:
        said = text[start:end].strip()
        if said:
            at = start + text[start:end].index(said)
            yield at, at + len(said)


def _rows(text: str, block: Block) -> Iterator[tuple[int, int]]:
    at = block.start
    while at < block.end:
        end = text.find("\n", at, block.end) + 1 or block.end
        yield at, end
        at = end
