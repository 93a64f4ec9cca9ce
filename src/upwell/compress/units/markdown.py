"""Split Markdown into units: headings, sentences, table rows and lines of code.

What people and tools use as headings without marking it as such counts, too: bold lines, the title
of a search result, and headings in a block of code that was cut off before its end.
"""

import re
from itertools import pairwise

from upwell.compress.normalise.embedded import LINK
from upwell.compress.units.base import BLANK, FIRST, Units, lines, pieces
from upwell.ground.text.sections import BLANK as BLANK_LINES
from upwell.ground.text.sections import (
    FENCE,
    HEADING,
    SENTENCE_END,
    TABLE,
    TextBlock,
    blocks,
)  # fmt: skip

_BOLD = re.compile(
    r"\*\*(?=\S)(?:(?:[^*\n]|\*(?!\*))++\*\*:?[ \t]*+(?:\n|\Z)"
    r"|\d+[.)] (?:[^*\n]|\*(?!\*))++\*\*[^\n]*+(?:\n|\Z))"
)
"""A bold line, or a bold number and title."""
_RESULT = re.compile(
    r"^(?:Title: [^\n]*+\n(?:[A-Z][\w ]{0,30}+:[^\n]*+\n){0,3}?URL: [^\n]*+(?:\n|\Z)"
    r"|={3,}+ [^\n=]++={3,}+[ \t]*+\n(?:[A-Z][\w ]{0,30}+:[^\n]*+\n){0,2}+)",
    re.M,
)
"""The title and address of a search result, or a line such as `=== quay ===`, with its fields."""
_FENCES = ("```", "~~~", "---")
_STRAY = re.compile(r"(#{2,6}) \S")
_RESULT_LEVEL, _BOLD_LEVEL = 0, 7
_LONG = 220
_SHORT_FENCE = 3
_EARLY = 30.0
"""`Units.early` for Markdown: the first units introduce the rest of the document."""


def split(text: str, name: str = "") -> Units:
    """Split Markdown. Units that are not blank need the headings above them."""
    units = Units(reach=1, by_names=True, early=_EARLY)
    starts = [match.start() for match in _RESULT.finditer(text)]
    for start, end in pairwise(dict.fromkeys([0, *starts, len(text)])):
        _add_document(units, text, start, end)
    return units


def _add_document(units: Units, text: str, start: int, end: int) -> None:
    """Add a document, which may be one of several search results."""
    trail = _Trail()
    if head := _RESULT.match(text, start, end):
        trail.add(units.add(start, head.end(), FIRST), _RESULT_LEVEL)
        start = head.end()
    for part in blocks(text[start:end]):
        block = part._replace(start=start + part.start, end=start + part.end)
        if block.what == HEADING:
            worth, needs = 4.0 - 0.5 * block.level, trail.above(block.level)
            trail.add(units.add(block.start, block.end, worth, needs), block.level)
        elif block.what == BLANK_LINES:
            units.add(block.start, block.end, BLANK)
        elif block.what == FENCE:
            _add_fence(units, text, block, trail)
        elif block.what == TABLE:
            _add_table(units, text, block, trail.needs)
        else:
            rest = _begin(units, text, block, trail)
            for first, last in _sentences(text, rest):
                is_link = LINK.match(text[first:last]) is not None
                units.add(first, last, FIRST if is_link else 0.0, trail.needs)


class _Trail:
    """The units of the headings above the current block, with their levels, outermost first."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, int]] = []

    @property
    def needs(self) -> tuple[int, ...]:
        return tuple([unit for _, unit in self._headings])

    def above(self, level: int) -> tuple[int, ...]:
        """End the headings that one of this level ends, and return the others."""
        while self._headings and self._headings[-1][0] >= level:
            self._headings.pop()
        return self.needs

    def add(self, unit: int, level: int) -> None:
        self._headings.append((level, unit))


def _begin(units: Units, text: str, block: TextBlock, trail: _Trail) -> TextBlock:
    """Add the line at the beginning of a paragraph, if it is a heading. Returns the rest."""
    if match := _BOLD.match(text, block.start, block.end):
        needs = trail.above(_BOLD_LEVEL)
        trail.add(units.add(block.start, match.end(), FIRST, needs), _BOLD_LEVEL)
        return block._replace(start=match.end())
    return block


def _sentences(text: str, block: TextBlock) -> list[tuple[int, int]]:
    if block.end - block.start <= _LONG:
        return [(block.start, block.end)] if block.start < block.end else []
    sentences: list[tuple[int, int]] = []
    offset = block.start
    for match in SENTENCE_END.finditer(text, block.start, block.end):
        if match.end() - offset >= 40:
            sentences.extend(pieces(text, offset, match.end()))
            offset = match.end()
    if offset < block.end:
        sentences.extend(pieces(text, offset, block.end))
    return sentences


def _add_fence(units: Units, text: str, block: TextBlock, trail: _Trail) -> None:
    """Add the lines of a block of code. Headings in it, such as those of the next document if this
    one was cut off, are headings of what follows."""
    needs = trail.needs
    spans = list(lines(text, block.start, block.end))
    if len(spans) <= _SHORT_FENCE + 2 and block.end - block.start <= _LONG:
        units.add(block.start, block.end, 0.0, needs)
        return
    first = len(units)
    is_closed = text[slice(*spans[-1])].lstrip().startswith(_FENCES)
    fence = (first, first + len(spans) - 1) if is_closed else (first,)
    is_blank = False
    for index, (start, end) in enumerate(spans, first):
        stray = _STRAY.match(text, start, end) if is_blank else None
        is_blank = not text[start:end].strip()
        needs = trail.above(len(stray[1])) if stray else trail.needs
        units.add(start, end, BLANK if index in fence else 0.0, (*needs, *fence))
        if stray:
            trail.add(index, len(stray[1]))


def _add_table(units: Units, text: str, block: TextBlock, needs: tuple[int, ...]) -> None:
    spans = list(lines(text, block.start, block.end))
    head: tuple[int, ...] = ()
    for index, (start, end) in enumerate(spans):
        unit = units.add(start, end, 0.0, (*needs, *head))
        if index < 2 and len(spans) > 2:
            head = (*head, unit)
