"""Split Markdown into units: headings, sentences, table rows and lines of code."""

from upwell.compress.normalise.embedded import LINK
from upwell.compress.units.base import BLANK, FIRST, Units, lines, pieces
from upwell.ground.text.sections import BLANK as BLANK_LINES
from upwell.ground.text.sections import (
    FENCE,
    HEADING,
    SENTENCE_END,
    TABLE,
    Block,
    blocks,
)  # fmt: skip

_LONG = 220
_SHORT_FENCE = 3
_EARLY = 30.0
"""`Units.early` for Markdown: the first units introduce the rest of the document."""


def split(text: str, name: str = "") -> Units:
    """Split Markdown. Units that are not blank need the headings above them."""
    units = Units(reach=1, by_names=True, early=_EARLY)
    above: dict[int, tuple[int, ...]] = {-1: ()}
    for number, block in enumerate(blocks(text)):
        needs = above[block.heading]
        if block.what == HEADING:
            unit = units.add(block.start, block.end, 4.0 - 0.5 * block.level, needs)
            above[number] = (*needs, unit)
        elif block.what == BLANK_LINES:
            units.add(block.start, block.end, BLANK)
        elif block.what == FENCE:
            _add_fence(units, text, block, needs)
        elif block.what == TABLE:
            _add_table(units, text, block, needs)
        else:
            for start, end in _sentences(text, block):
                is_link = LINK.match(text[start:end]) is not None
                units.add(start, end, FIRST if is_link else 0.0, needs)
    return units


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


def _add_fence(units: Units, text: str, block: Block, needs: tuple[int, ...]) -> None:
    spans = list(lines(text, block.start, block.end))
    if len(spans) <= _SHORT_FENCE + 2 and block.end - block.start <= _LONG:
        units.add(block.start, block.end, 0.0, needs)
        return
    first, last = len(units), len(units) + len(spans) - 1
    for index, (start, end) in enumerate(spans, first):
        units.add(start, end, BLANK if index in (first, last) else 0.0, (*needs, first, last))


def _add_table(units: Units, text: str, block: Block, needs: tuple[int, ...]) -> None:
    spans = list(lines(text, block.start, block.end))
    head: tuple[int, ...] = ()
    for index, (start, end) in enumerate(spans):
        unit = units.add(start, end, 0.0, (*needs, *head))
        if index < 2 and len(spans) > 2:
            head = (*head, unit)
