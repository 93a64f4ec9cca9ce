"""Of a chunk, what a query is answered by: the lines to cite, and what to show of them."""

from collections.abc import Iterable

from upwell.ground.text.sections import blocks
from upwell.memory.statements import MARK, statements
from upwell.memory.terms import counted, query_words, sound, stemmer

EXTRA_LINE = 0.25
"""A line more in a citation, beyond one whole statement, must bring more than this share of a
word."""


def lines_for(text: str, queries: Iterable[str]) -> tuple[int, int] | None:
    """First and last line of `text` (from 0) that hold most of the queries' words, whole sentences
    and what they announce with a colon; None when no line holds any. A heading stands for
    everything below it."""
    wanted = {stem for query in queries for stem in stemmer().stems(query_words(query))}
    said = statements(text)
    telling = [
        (one, held | _stems(one.head, wanted))
        for one in said
        if (held := _stems(text[one.start : one.end], wanted))
    ]
    best, chosen = 0.0, None
    for place, (first, _) in enumerate(telling):
        covered: set[str] = set()
        for last, stems in telling[place:]:
            covered |= stems
            worth = len(covered) - EXTRA_LINE * (last.last - first.last)
            if worth > best:
                best, chosen = worth, (first, last)
    if chosen is None:
        return None
    first, last = chosen
    within = [one for one in said if first.start <= one.start <= last.start]
    if all(one.is_heading for one in within):
        return first.first, text.count("\n")
    return first.first, last.until


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
    return MARK.sub("", part, count=1) if MARK.match(part) else part


def _stems(text: str, wanted: set[str]) -> set[str]:
    return wanted & counted(sound(text)).keys() if text else set()
