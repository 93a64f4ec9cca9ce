"""Markdown: blocks under their headings; paragraphs by sentence, tables by row, code by line."""

import re

from upwell.compress.units.base import Units, lines, pieces
from upwell.compress.units.marks import Marks
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
"""What a line that is nothing but links (a menu, a row of badges) is worth."""
_SENTENCE_CHARS = 40
_EARLY = 2.0
"""What the beginning of a document is worth before its end: it says what the rest is about."""


def split(text: str, name: str = "") -> Units:
    """Sentences, list items, table rows and lines of code, each with the headings above it."""
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
        for place, (start, end) in enumerate(_sentences(text, block)):
            bonus = lift if place == 0 else 0.0
            worth = marks.worth(start, end) if end - start < _SENTENCE_CHARS else 0.0
            if _LINK_ONLY.match(text, start, end):
                worth = _LINK
            units.add(start, end, worth + bonus + early - 0.2 * min(place, 5), needs)


def _sentences(text: str, block: Block) -> list[tuple[int, int]]:
    if block.end - block.start <= _LONG:
        return [(block.start, block.end)]
    found: list[tuple[int, int]] = []
    at = block.start
    for match in SENTENCE_END.finditer(text, block.start, block.end):
        if match.end() - at >= 40:
            found.extend(pieces(text, at, match.end()))
            at = match.end()
    if at < block.end:
        found.extend(pieces(text, at, block.end))
    return found


def _add_fence(units: Units, text: str, marks: Marks, block: Block, needs: tuple[int, ...]) -> None:
    """Both ends of a fence go with every line inside it."""
    spans = list(lines(text, block.start, block.end))
    if len(spans) <= _SHORT_FENCE + 2 and block.end - block.start <= _LONG:
        units.add(block.start, block.end, 0.0, needs)
        return
    opening = len(units)
    ends = (*needs, opening, opening + len(spans) - 1)
    for place, (start, end) in enumerate(spans):
        if place in (0, len(spans) - 1):
            units.add(start, end, -4.0, ends)
        else:
            units.add(start, end, marks.worth(start, end) - 0.5 - 0.1 * min(place, 10), ends)


def _add_table(units: Units, text: str, marks: Marks, block: Block, needs: tuple[int, ...]) -> None:
    """The head of a table goes with every row."""
    spans = list(lines(text, block.start, block.end))
    head: tuple[int, ...] = ()
    for place, (start, end) in enumerate(spans):
        own = (*needs, *head)
        unit = units.add(start, end, marks.worth(start, end) + (1.0 if place < 2 else 0.0), own)
        if place < 2 and len(spans) > 2:
            head = (*head, unit)
