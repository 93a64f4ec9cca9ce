"""Split Markdown: paragraphs into sentences, tables into rows, code into lines, under headings."""

import re

from upwell.compress.units.base import Marks, Units, lines, pieces
from upwell.ground.text.sections import (
    BLANK,
    FENCE,
    HEADING,
    SENTENCE_END,
    TABLE,
    Block,
    blocks,
)  # fmt: skip

_LONG = 220
_SHORT_FENCE = 3
_LINK_ONLY = re.compile(r"\s*(?:[-*+]\s+)?(?:!?\[[^\]\n]{0,200}\]\([^)\n]{0,400}\)[\s|,·]*){1,9}\Z")
_LINK = -3.0
"""The salience of a line that has only links (a menu, a row of badges)."""
_SENTENCE_CHARS = 40
_EARLY = 2.0
"""How much more the beginning of a document is worth than its end: it introduces the rest."""


def split(text: str, name: str = "") -> Units:
    """Split into sentences, list items, table rows and lines of code; each needs its headings."""
    units = Units(reach=1)
    marks = Marks(text)
    heading_units: dict[int, int] = {}
    above: dict[int, tuple[int, ...]] = {-1: ()}
    since_heading = 0
    for number, block in enumerate(blocks(text)):
        needs = above[block.heading]
        if block.what == HEADING:
            unit = units.add(block.start, block.end, 4.0 - 0.5 * block.level, needs)
            heading_units[number] = unit
            above[number] = (*needs, unit)[-4:]
            since_heading = 0
            continue
        if block.what == BLANK:
            units.add(block.start, block.end, -6.0)
            continue
        _add_block(units, text, marks, block, needs, first=since_heading == 0)
        since_heading += 1
    return units


def _add_block(
    units: Units, text: str, marks: Marks, block: Block, needs: tuple[int, ...], *, first: bool
) -> None:
    lift = 1.5 if first else 0.0
    if block.what == FENCE:
        _add_fence(units, text, marks, block, needs)
    elif block.what == TABLE:
        _add_table(units, text, marks, block, needs)
    else:
        early = _EARLY * (1.0 - block.start / len(text))
        for index, (start, end) in enumerate(_sentences(text, block)):
            bonus = lift if index == 0 else 0.0
            worth = marks.worth(start, end) if end - start < _SENTENCE_CHARS else 0.0
            if _LINK_ONLY.match(text, start, end):
                worth = _LINK
            units.add(start, end, worth + bonus + early - 0.2 * min(index, 5), needs)


def _sentences(text: str, block: Block) -> list[tuple[int, int]]:
    if block.end - block.start <= _LONG:
        return [(block.start, block.end)]
    sentences: list[tuple[int, int]] = []
    offset = block.start
    for match in SENTENCE_END.finditer(text, block.start, block.end):
        if match.end() - offset >= 40:
            sentences.extend(pieces(text, offset, match.end()))
            offset = match.end()
    if offset < block.end:
        sentences.extend(pieces(text, offset, block.end))
    return sentences


def _add_fence(units: Units, text: str, marks: Marks, block: Block, needs: tuple[int, ...]) -> None:
    """Add the lines of a fence; each needs both ends of the fence."""
    spans = list(lines(text, block.start, block.end))
    if len(spans) <= _SHORT_FENCE + 2 and block.end - block.start <= _LONG:
        units.add(block.start, block.end, 0.0, needs)
        return
    first_unit = len(units)
    ends = (*needs, first_unit, first_unit + len(spans) - 1)
    for index, (start, end) in enumerate(spans):
        if index in (0, len(spans) - 1):
            units.add(start, end, -4.0, ends)
        else:
            units.add(start, end, marks.worth(start, end) - 0.5 - 0.1 * min(index, 10), ends)


def _add_table(units: Units, text: str, marks: Marks, block: Block, needs: tuple[int, ...]) -> None:
    """Add the rows of a table; each needs the head of the table."""
    spans = list(lines(text, block.start, block.end))
    head: tuple[int, ...] = ()
    for index, (start, end) in enumerate(spans):
        row_needs = (*needs, *head)
        unit = units.add(
            start, end, marks.worth(start, end) + (1.0 if index < 2 else 0.0), row_needs
        )
        if index < 2 and len(spans) > 2:
            head = (*head, unit)
