"""Select the passage in a section that answers a question.

A passage consists of whole blocks and of the text that governs them. An item of a list, for
instance, is quoted with the sentence that introduces the list, because "Do not:" turns the item
into its opposite. Text that is too long is shortened to whole sentences or rows where possible.
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from upwell.memory.documents.sections.index import Index
from upwell.memory.documents.sections.parse import CALLOUT, CODE, ITEM, PROSE, TABLE, Block
from upwell.memory.documents.sections.rank import QuestionReading
from upwell.memory.documents.sections.terms import terms

MAX_PASSAGE_CHARS = 480
"""The approximate maximum length of a passage, equal to about 120 tokens."""
MAX_TRAIL = 4
MIN_EXCERPT_CHARS = 100
KIND_SHARES = {CODE: 0.6, TABLE: 0.8}
OPENING_BONUS = 1.25
FOLLOWING_SHARE = 0.3
NEIGHBOUR_SHARE = 0.5
"""A neighbour may join the passage if it is worth at least this share of the best block."""
GOVERNING = re.compile(
    r"(?i)\b(?:do not|don't|never|avoid|must not|should not|anti-?patterns?|out of scope|"
    r"non-goals?|deprecated|obsolete|legacy|no longer|not supported|unsupported|removed in|"
    r"incorrect|wrong|bad)\b"
)
"""Matches words that negate what follows them."""
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+(?=[\"'(\[`*_]{0,3}[^\W_a-z])")

Piece = tuple[str, tuple[int, int]]
"""A text, and the numbers of its first and last lines."""


class QuotedPassage(Struct, frozen=True):
    """The `text` to quote from a section. `lines` are its first and last line (1-based, inclusive),
    and `kinds` are the kinds of its blocks."""

    number: int
    text: str
    lines: tuple[int, int]
    headings: tuple[str, ...]
    kinds: tuple[str, ...] = ()


def passage(index: Index, number: int, reading: QuestionReading) -> QuotedPassage:
    """Choose the text to quote from a section: the best blocks and the text that governs them,
    shortened to about `MAX_PASSAGE_CHARS`. If the section is only a heading, its first subsection
    is quoted instead."""
    number = _with_text(index, number)
    section = index.places[number]
    headings = _headings(section.trail)
    blocks = index.blocks(number)
    if not blocks:
        return QuotedPassage(number, section.heading, (section.first, section.first), headings[:-1])
    worth = _worths(index, number, blocks, reading)
    best = max(
        range(len(blocks)),
        key=lambda index: (
            worth[index] + FOLLOWING_SHARE * sum(worth[index + 1 : index + 2]),
            -index,
        ),
    )
    block_numbers = _chosen(blocks, worth, best)
    pieces = _pieces(index, blocks, block_numbers, best, reading)
    lines = min(first for _, (first, _) in pieces), max(last for _, (_, last) in pieces)
    kinds = tuple(blocks[position].kind for position in sorted(block_numbers))
    return QuotedPassage(number, "\n".join(text for text, _ in pieces), lines, headings, kinds)


def _headings(trail: Sequence[str]) -> tuple[str, ...]:
    governing_headings = [heading for heading in trail[:-MAX_TRAIL] if GOVERNING.search(heading)]
    return (*governing_headings, *trail[-MAX_TRAIL:])


def _with_text(index: Index, number: int) -> int:
    position, places = number, index.places
    while (
        not places[position].has_text
        and position + 1 in places
        and places[position + 1].parent == position
    ):
        position += 1
    return position if places[position].has_text else number


def _worths(
    index: Index, number: int, blocks: Sequence[Block], reading: QuestionReading
) -> list[float]:
    terms_by_block = index.block_terms(number)
    worth = [
        _worth(index, present, reading) * KIND_SHARES.get(block.kind, 1.0)
        for block, present in zip(blocks, terms_by_block, strict=True)
    ]
    opening = next((position for position, block in enumerate(blocks) if block.kind == PROSE), 0)
    worth[opening] *= OPENING_BONUS
    return worth


def _worth(index: Index, present: Collection[str], reading: QuestionReading) -> float:
    total = 0.0
    for term, weight in reading.weights.items():
        if term in present:
            total += weight * index.idf(term)
        else:
            shares = [share for other, share in reading.variants[term] if other in present]
            total += weight * index.idf(term) * max(shares, default=0.0)
    return total


def _chosen(blocks: Sequence[Block], worth: Sequence[float], best: int) -> set[int]:
    block_numbers = _with_lead(blocks, best)
    if blocks[best].kind == ITEM:
        block_numbers = _with_items(blocks, worth, best, block_numbers)
    return _widened(blocks, worth, best, block_numbers)


def _with_lead(blocks: Sequence[Block], best: int) -> set[int]:
    """Return a block, the blocks that introduce it, and the block that it introduces. A block is
    introduced by the items that contain it, by the text before its list, code block or table, and
    by the opening of its callout."""
    block_numbers = {best, *_leading(blocks, best)}
    block, following = blocks[best], blocks[best + 1 : best + 3]
    if _announces(block) and following:
        block_numbers.add(best + 1)
        if following[0].kind == CALLOUT and len(following) > 1:
            block_numbers.add(best + 2)
    if block.kind == CALLOUT and following and "\n" not in block.text:
        block_numbers.add(best + 1)
    if block.callout:
        block_numbers |= {
            index for index, other in enumerate(blocks) if other.first == block.callout
        }
    return block_numbers


def _leading(blocks: Sequence[Block], best: int) -> set[int]:
    block_numbers: set[int] = set()
    index, indent = best, blocks[best].indent
    while index > 0:
        block, above = blocks[index], blocks[index - 1]
        if block.kind == ITEM and above.kind == ITEM:
            if above.indent < indent:
                block_numbers.add(index - 1)
                indent = above.indent
            index -= 1
            continue
        if block.kind in (ITEM, CODE, TABLE) and above.kind in (PROSE, CALLOUT, ITEM):
            if index == best or _announces(above) or GOVERNING.search(above.text):
                block_numbers.add(index - 1)
        elif above.kind == CALLOUT or _announces(above):
            block_numbers.add(index - 1)
        break
    return block_numbers


def _announces(block: Block) -> bool:
    return block.text.rstrip().endswith(":")


def _size(blocks: Sequence[Block], block_numbers: Collection[int]) -> int:
    return sum(len(blocks[index].text) for index in block_numbers)


def _with_items(
    blocks: Sequence[Block], worth: Sequence[float], best: int, block_numbers: set[int]
) -> set[int]:
    size = _size(blocks, block_numbers)
    for index in sorted(range(len(blocks)), key=lambda position: (-worth[position], position)):
        if worth[index] < NEIGHBOUR_SHARE * worth[best]:
            break
        alike = blocks[index].kind == ITEM and blocks[index].indent == blocks[best].indent
        if (
            alike
            and index not in block_numbers
            and size + len(blocks[index].text) <= MAX_PASSAGE_CHARS
        ):
            block_numbers = block_numbers | {index}
            size += len(blocks[index].text)
    return block_numbers


def _widened(
    blocks: Sequence[Block], worth: Sequence[float], best: int, block_numbers: set[int]
) -> set[int]:
    """While there is room, add neighbours that also contain much of the question or that continue
    the prose."""
    block_numbers, size = set(block_numbers), _size(blocks, block_numbers)
    low = high = best
    while low - 1 in block_numbers:
        low -= 1
    while high + 1 in block_numbers:
        high += 1
    while True:
        room = MAX_PASSAGE_CHARS - size
        options = [
            index
            for index in (high + 1, low - 1)
            if 0 <= index < len(blocks)
            and index not in block_numbers
            and len(blocks[index].text) <= room
            and _belongs(blocks, worth, best, index)
            and not (index > best and _promises(blocks, index, room))
        ]
        if not options:
            return block_numbers
        index = max(options, key=lambda position: worth[position])
        block_numbers.add(index)
        size += len(blocks[index].text)
        low, high = min(low, index), max(high, index)


def _belongs(blocks: Sequence[Block], worth: Sequence[float], best: int, index: int) -> bool:
    if worth[index] >= NEIGHBOUR_SHARE * worth[best]:
        return True
    if blocks[best].kind != ITEM and blocks[index].kind == PROSE:
        return True
    return blocks[index].kind in (CODE, ITEM) and index > 0 and _announces(blocks[index - 1])


def _promises(blocks: Sequence[Block], index: int, room: int) -> bool:
    if blocks[index].kind != CALLOUT and not _announces(blocks[index]):
        return False
    after = len(blocks[index + 1].text) if index + 1 < len(blocks) else room
    return len(blocks[index].text) + after > room


def _pieces(
    index: Index,
    blocks: Sequence[Block],
    block_numbers: set[int],
    best: int,
    reading: QuestionReading,
) -> list[Piece]:
    """Return the chosen blocks in order, or excerpts of them. The best block gets space first."""
    pieces: dict[int, Piece] = {}
    room = MAX_PASSAGE_CHARS
    for number in sorted(
        block_numbers, key=lambda position: (position != best, abs(position - best))
    ):
        block = blocks[number]
        others = block_numbers - pieces.keys() - {number}
        limit = room - sum(
            min(len(blocks[position].text), MIN_EXCERPT_CHARS) for position in others
        )
        if len(block.text) <= limit:
            pieces[number] = block.text, (block.first, block.last)
        else:
            limit = max(MIN_EXCERPT_CHARS, limit)
            pieces[number] = _excerpt(index, block, reading, limit, is_lead=number < best)
        room -= len(pieces[number][0])
    return [pieces[number] for number in sorted(pieces)]


def _excerpt(
    index: Index, block: Block, reading: QuestionReading, max_chars: int, *, is_lead: bool
) -> Piece:
    """Shorten a long block to the sentences that contain most of the question. Code and tables are
    shortened to rows instead. A lead-in (`is_lead`) keeps its last sentences or rows."""
    by_rows = block.kind in (CODE, TABLE)
    parts = block.text.split("\n") if by_rows else _SENTENCE.split(block.text)
    begins, position = list[int](), 0
    for part in parts:
        begins.append(block.text.index(part, position))
        position = begins[-1] + len(part)
    first, last = _span(index, parts, reading, max_chars, is_lead=is_lead)
    start, end = begins[first], begins[last] + len(parts[last])
    text = block.text[start:end]
    is_cut = len(text) > 2 * max_chars
    if is_cut:
        text = text[: text.rfind(" ", 0, 2 * max_chars) + 1 or 2 * max_chars].rstrip()
    above = block.first + block.text.count("\n", 0, start)
    before, after = "… " if first else "", " …" if is_cut or last + 1 < len(parts) else ""
    return before + text + after, (above, above + text.count("\n"))


def _span(
    index: Index, parts: Sequence[str], reading: QuestionReading, max_chars: int, *, is_lead: bool
) -> tuple[int, int]:
    worth = [_worth(index, frozenset(terms(part)), reading) for part in parts]
    best = (
        len(parts) - 1
        if is_lead
        else max(range(len(parts)), key=lambda index: (worth[index], -index))
    )
    first, last, size = best, best, len(parts[best])
    while True:
        options = [
            number
            for number in (last + 1, first - 1)
            if 0 <= number < len(parts) and size + len(parts[number]) + 1 <= max_chars
        ]
        if not options:
            return first, last
        governed = first - 1 in options and GOVERNING.search(parts[first - 1])
        number = first - 1 if governed else max(options, key=lambda position: worth[position])
        first, last = min(first, number), max(last, number)
        size += len(parts[number]) + 1
