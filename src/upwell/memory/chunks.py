"""Markdown cut into chunks that can be found and cited: whole lines, under their headings.

A chunk is about one thing: it begins at a heading or where it would grow beyond `TARGET_CHARS`,
and ends with a whole paragraph, list item, table or fence. Seed 003's origin cut at 1 600
characters with 320 of overlap; chunks of 400 cite the lines that answer more often
(`docs/measurements.md`), and what was said of one leaves the rest of its section unsaid. Nothing
overlaps.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from upwell.ground.text.sections import BLANK, FENCE, HEADING, TABLE, Block, blocks, title

TARGET_CHARS = 400
MAX_CHARS = 800
MAX_WHOLE_CHARS = 1_600
"""Fences and tables up to this size stay in one piece."""
MAX_LINE_CHARS = 2_000
"""A longer line is cut at a space; its pieces have the same line number."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text` is what stands in `lines` (1-based, inclusive), `headings` what these stand under,
    outermost first; `number` tells apart the chunks under the same headings."""

    text: str
    lines: tuple[int, int]
    headings: tuple[str, ...]
    number: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Lines `first` to `last` (0-based) that belong together."""

    first: int
    last: int
    chars: int
    block: Block


def cut(text: str, start: int = 0) -> list[Chunk]:
    """The chunks of `text` from the character `start` on, which begins a line. Together they hold
    every line that is not blank, in order."""
    rows = [row.removesuffix("\r") for row in text.split("\n")]
    found = blocks(text)
    chunks: list[Chunk] = []
    for group in _grouped(list(_pieces(text, rows, found, start))):
        above = _headings(text, found, group[0].block)
        first, last = group[0].first, group[-1].last
        chunks += [
            Chunk(part, (first + 1, last + 1), above) for part in _within(rows[first : last + 1])
        ]
    return _numbered(chunks)


def _pieces(text: str, rows: Sequence[str], found: Sequence[Block], start: int) -> Iterator[_Piece]:
    """The blocks that say something, as lines; long ones in several pieces."""
    begins = list(accumulate((len(row) + 1 for row in text.split("\n")), initial=0))
    at = 0
    for block in found:
        if block.start < start or block.what == BLANK:
            continue
        while begins[at + 1] <= block.start:
            at += 1
        first = last = at
        while last + 1 < len(rows) and begins[last + 1] < block.end:
            last += 1
        while last > first and not rows[last].strip():
            last -= 1
        yield from _divided(rows, first, last, block)


def _divided(rows: Sequence[str], first: int, last: int, block: Block) -> Iterator[_Piece]:
    limit = MAX_WHOLE_CHARS if block.what in (FENCE, TABLE) else MAX_CHARS
    chars = sum(len(row) + 1 for row in rows[first : last + 1])
    if chars <= limit:
        yield _Piece(first, last, chars, block)
        return
    begin, size = first, 0
    for at in range(first, last + 1):
        long = len(rows[at]) + 1
        if size and size + long > MAX_CHARS:
            yield _Piece(begin, at - 1, size, block)
            begin, size = at, 0
        size += long
    yield _Piece(begin, last, size, block)


def _grouped(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """Neighbours put together up to the target; a heading begins anew, unless it stands directly
    below the one above it."""
    group: list[_Piece] = []
    for piece in pieces:
        if group and not _goes_on(group, piece):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _goes_on(group: Sequence[_Piece], piece: _Piece) -> bool:
    last = group[-1].block
    if piece.block.what == HEADING:
        return last.what == HEADING and piece.block.level > last.level
    size = sum(one.chars for one in group)
    only_headings = all(one.block.what == HEADING for one in group)
    return size + piece.chars <= (MAX_CHARS if only_headings else TARGET_CHARS)


def _within(rows: Sequence[str]) -> Iterator[str]:
    """The text of these lines; of a line that is too long, its parts."""
    if len(rows) > 1 or len(rows[0]) <= MAX_LINE_CHARS:
        yield "\n".join(rows)
        return
    row = rows[0]
    while len(row) > MAX_LINE_CHARS:
        space = row.rfind(" ", MAX_LINE_CHARS // 2, MAX_LINE_CHARS)
        end = space + 1 if space > 0 else MAX_LINE_CHARS
        if row[:end].strip():
            yield row[:end]
        row = row[end:]
    if row.strip():
        yield row


def _headings(text: str, found: Sequence[Block], block: Block) -> tuple[str, ...]:
    trail = [title(text, block)] if block.what == HEADING else []
    while block.heading >= 0:
        block = found[block.heading]
        trail.append(title(text, block))
    return tuple(reversed(trail))


def _numbered(chunks: Iterable[Chunk]) -> list[Chunk]:
    counts: dict[tuple[str, ...], int] = {}
    numbered = []
    for chunk in chunks:
        number = counts.get(chunk.headings, 0)
        counts[chunk.headings] = number + 1
        numbered.append(Chunk(chunk.text, chunk.lines, chunk.headings, number))
    return numbered
