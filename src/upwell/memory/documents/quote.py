"""Select the lines of a chunk that answer a query, to cite or to show them.

A citation covers whole statements: all lines of a sentence, a row of a table, or a line of code.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from upwell.ground.text.sections import (
    BLANK,
    FENCE,
    HEADING,
    ITEM,
    PARAGRAPH,
    SENTENCE_END,
    TABLE,
    TextBlock,
    blocks,
)  # fmt: skip
from upwell.ground.text.words import STOP_WORDS
from upwell.memory.lookups import counted, stemmer
from upwell.memory.ranking.terms import query_words, sound

MARK = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
WRAP_CHARS = 60
"""The narrowest width at which authors usually wrap prose. The width of a paragraph is that of its
longest line, but at least this. A line break may be deliberate and end a statement if the next word
would have fitted into the paragraph's width.
"""
_ROW = re.compile(r"[^\n]*+\n|[^\n]++")
_RULE = re.compile(r"[ \t|:-]+")
_HARD_BREAK = ("  ", "\\", "<br>", "<br/>")
_CONTINUED = (",", ";", "(", "[", "{", "/", "-", "–", "—", "&", "+", "=")


class QuotedStatement(Struct, frozen=True):
    """`text[start:end]`, which spans the lines `first` to `last` (0-based).

    `until` is the last line of what the statement introduces, if it ends in a colon or is the head
    of a table. Otherwise, `until` equals `last`. For a row of a table, `head` is the table's head.
    """

    start: int
    end: int
    first: int
    last: int
    until: int
    is_heading: bool = False
    head: str = ""


def statements(text: str) -> list[QuotedStatement]:
    begins = list(accumulate((len(row) + 1 for row in text.split("\n")), initial=0))[:-1]

    def line(offset: int) -> int:
        return bisect_right(begins, offset) - 1

    all_blocks = blocks(text)
    result: list[QuotedStatement] = []
    for number, block in enumerate(all_blocks):
        pieces = list(_stripped(text, _pieces(text, block)))
        has_head = block.what == TABLE and len(pieces) > 1 and _RULE.fullmatch(text, *pieces[1])
        head = text[slice(*pieces[0])] if has_head else ""
        for piece_number, (start, end) in enumerate(pieces):
            if head and piece_number == 1:
                continue
            end_line = line(end - 1)
            if head and piece_number == 0:
                end_line = line(pieces[-1][1] - 1)
            elif piece_number == len(pieces) - 1 and text[end - 1] == ":":
                end_line = max(end_line, line(_announced(text, all_blocks, number) - 1))
            row_head = head if piece_number else ""
            is_heading = block.what == HEADING
            result.append(
                QuotedStatement(
                    start, end, line(start), line(end - 1), end_line, is_heading, row_head
                )
            )
    return result


def _pieces(text: str, block: TextBlock) -> Iterable[tuple[int, int]]:
    if block.what == BLANK:
        return ()
    if block.what == HEADING:
        return ((block.start, block.end),)
    rows = [match.span() for match in _ROW.finditer(text, block.start, block.end)]
    if block.what in (FENCE, TABLE):
        return rows
    mark = MARK.match(text, block.start, block.end) if block.what == ITEM else None
    begin = mark.end() if mark else block.start
    ends = {match.end() for match in SENTENCE_END.finditer(text, begin, block.end)}
    width = max(WRAP_CHARS, *(len(text[start:end].rstrip()) for start, end in rows))
    for (start, end), (_, after) in pairwise(rows):
        if _is_deliberate(text[start:end], text[end:after], width):
            ends.add(end)
    return pairwise([block.start, *sorted(ends - {block.end}), block.end])


def _is_deliberate(row: str, following: str, width: int) -> bool:
    """Return whether the author intended this line break. Hard breaks are intended. So is a break
    before a word that would have fitted on the line, unless the word begins with a lower-case
    letter, or the line ends with a comma, a stop word or the like."""
    row = row.rstrip("\r\n")
    if row.endswith(_HARD_BREAK):
        return True
    words, ahead = row.split(), following.split()
    if not words or not ahead or len(row.rstrip()) + 1 + len(ahead[0]) > width:
        return False
    is_open = words[-1].lower() in STOP_WORDS or words[-1].endswith(_CONTINUED)
    return not is_open and not ahead[0][0].islower()


def _announced(text: str, blocks: Sequence[TextBlock], number: int) -> int:
    block = blocks[number]
    following = [other for other in blocks[number + 1 :] if other.what != BLANK]
    if following and following[0].what in (FENCE, TABLE):
        return _content_end(text, following[0])
    end = _content_end(text, block)
    for other in following:
        deeper = block.what == PARAGRAPH or _indent(text, other) > _indent(text, block)
        if other.what != ITEM or not deeper:
            break
        end = _content_end(text, other)
    return end


def _indent(text: str, block: TextBlock) -> int:
    row = text[block.start : block.end]
    return len(row) - len(row.lstrip(" \t"))


def _content_end(text: str, block: TextBlock) -> int:
    return block.start + len(text[block.start : block.end].rstrip())


def _stripped(text: str, pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in pieces:
        content = text[start:end].strip()
        if content:
            offset = start + text[start:end].index(content)
            yield offset, offset + len(content)


EXTRA_LINE = 0.25
"""How many more of the queries' words a citation must contain for each line that is added to its
first statement."""
HEADED = 0.5
"""The weight of a matched word that also occurs in a heading."""


def lines_for(text: str, queries: Iterable[str]) -> tuple[int, int] | None:
    """Return the first and last line (0-based) of the part of `text` that best matches the queries.
    The part consists of consecutive whole statements with many of the queries' words in few lines,
    and of what the last statement introduces. If all matched words are in headings, the part runs
    from the first match to the end. Returns None if no line contains any of the words."""
    query_stems = {stem for query in queries for stem in stemmer().stems(query_words(query))}
    matched = [
        (statement, _stems(text[statement.start : statement.end], query_stems))
        for statement in statements(text)
    ]
    headed = {stem for statement, stems in matched if statement.is_heading for stem in stems}
    telling = [
        (statement, stems | _stems(statement.head, query_stems))
        for statement, stems in matched
        if stems and not statement.is_heading
    ]
    if all(stems <= headed for _, stems in telling):
        first = next((statement.first for statement, stems in matched if stems), None)
        return None if first is None else (first, text.count("\n"))
    return _best(telling, headed)


def _best(telling: Sequence[tuple[QuotedStatement, set[str]]], headed: set[str]) -> tuple[int, int]:
    best, chosen = -1.0, (telling[0][0], telling[0][0])
    for index, (first, _) in enumerate(telling):
        covered: set[str] = set()
        for last, stems in telling[index:]:
            covered |= stems
            worth = len(covered - headed) + HEADED * len(covered & headed)
            worth -= EXTRA_LINE * (last.last - first.last)
            if worth > best:
                best, chosen = worth, (first, last)
    return chosen[0].first, chosen[1].until


def _stems(text: str, stems: set[str]) -> set[str]:
    return stems & counted(sound(text)).keys() if text else set()


def quoted(text: str, queries: Iterable[str]) -> str:
    """Return the paragraphs, items, tables or code blocks of `text` that contain the lines for
    these queries. A single list item is returned without its marker. If no line matches, the whole
    text is returned."""
    span = lines_for(text, queries)
    if span is None:
        return text
    rows = text.split("\n")
    start = sum(len(row) + 1 for row in rows[: span[0]])
    end = start + sum(len(row) + 1 for row in rows[span[0] : span[1] + 1])
    touched = [block for block in blocks(text) if block.start < end and block.end > start]
    part = text[touched[0].start : touched[-1].end].strip("\n")
    mark = MARK.match(part) if len(touched) == 1 else None
    return part[mark.end() :] if mark else part
