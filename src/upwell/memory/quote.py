"""Of a chunk, what a query is answered by: the lines to cite, and what to show of them."""

import re
from collections.abc import Iterable

from upwell.ground.text.sections import HEADING, blocks
from upwell.memory.terms import counted, query_words, sound, stemmer

EXTRA_LINE = 0.25
"""A line more in a citation must bring more than this share of a word."""
_MARK = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")


def lines_for(text: str, queries: Iterable[str]) -> tuple[int, int] | None:
    """First and last line of `text` (from 0) that hold most of the queries' words; None when no
    line holds any. A heading stands for everything below it."""
    rows = text.split("\n")
    wanted = {stem for query in queries for stem in stemmer().stems(query_words(query))}
    held = [wanted & counted(sound(row)).keys() for row in rows]
    telling = [at for at, stems in enumerate(held) if stems]
    best, span = 0.0, None
    for place, first in enumerate(telling):
        covered: set[str] = set()
        for last in telling[place:]:
            covered |= held[last]
            worth = len(covered) - EXTRA_LINE * (last - first)
            if worth > best:
                best, span = worth, (first, last)
    if span and all(_is_heading(text, at) for at in range(span[0], span[1] + 1)):
        return span[0], len(rows) - 1
    return span


def quoted(text: str, queries: Iterable[str]) -> str:
    """The paragraphs, items, tables or fences of `text` that hold the lines for these queries;
    one list item without its mark. All of it where no line holds any."""
    span = lines_for(text, queries)
    if span is None:
        return text
    rows = text.split("\n")
    start = sum(len(row) + 1 for row in rows[: span[0]])
    end = start + sum(len(row) + 1 for row in rows[span[0] : span[1] + 1])
    touched = [one for one in blocks(text) if one.start < end and one.end > start]
    part = text[touched[0].start : touched[-1].end].strip("\n")
    return _MARK.sub("", part, count=1) if _MARK.match(part) else part


def _is_heading(text: str, row: int) -> bool:
    at = sum(len(line) + 1 for line in text.split("\n")[:row])
    return any(one.what == HEADING and one.start <= at < one.end for one in blocks(text))
