"""Of a chunk, what a query is answered by: the lines to cite, and what to show of them."""

from collections.abc import Iterable, Sequence

from upwell.ground.text.sections import blocks
from upwell.memory.statements import MARK, Statement, statements
from upwell.memory.terms import counted, query_words, sound, stemmer

EXTRA_LINE = 0.25
"""A line more in a citation, beyond one whole statement, must bring more than this share of a
word."""
HEADED = 0.5
"""What a word is worth that a heading above says already."""


def lines_for(text: str, queries: Iterable[str]) -> tuple[int, int] | None:
    """First and last line of `text` (from 0) that hold most of the queries' words, whole sentences
    and what they announce with a colon; None when no line holds any. Where the headings say as
    much as what stands below them, they stand for all of it."""
    wanted = {stem for query in queries for stem in stemmer().stems(query_words(query))}
    said = statements(text)
    held = [_stems(text[one.start : one.end], wanted) for one in said]
    headed = {
        stem for one, stems in zip(said, held, strict=True) if one.is_heading for stem in stems
    }
    telling = [
        (one, stems | _stems(one.head, wanted))
        for one, stems in zip(said, held, strict=True)
        if stems and not one.is_heading
    ]
    if all(stems <= headed for _, stems in telling):
        first = next((one.first for one, stems in zip(said, held, strict=True) if stems), None)
        return None if first is None else (first, text.count("\n"))
    return _best(telling, headed)


def _best(telling: Sequence[tuple[Statement, set[str]]], headed: set[str]) -> tuple[int, int]:
    best, chosen = -1.0, (telling[0][0], telling[0][0])
    for place, (first, _) in enumerate(telling):
        covered: set[str] = set()
        for last, stems in telling[place:]:
            covered |= stems
            worth = len(covered - headed) + HEADED * len(covered & headed)
            worth -= EXTRA_LINE * (last.last - first.last)
            if worth > best:
                best, chosen = worth, (first, last)
    return chosen[0].first, chosen[1].until


def _stems(text: str, wanted: set[str]) -> set[str]:
    return wanted & counted(sound(text)).keys() if text else set()


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
