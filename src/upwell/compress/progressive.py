"""`progressive`: a text delivered in chunks, one after the other, without losing a character.

Every chunk ends with the canonical footer of seed 002, `\\n---\\n[progressive: chars=<n>]`, where
`n` is the number of characters of the original that the chunk delivers. Offsets count characters
of the original from 0: the next chunk begins at this one's offset + `n`, and the last one is where
that is the length of the original. Whoever puts chunks together takes what precedes the *last*
`PROGRESSIVE_FOOTER_TOKEN` of each: the content may contain the token itself.
"""

import re
from collections.abc import Iterable

from upwell.compress.base import NO_TOOLS, Tools
from upwell.compress.fitted import Fitted, Room, outcome
from upwell.ground.errors import CompressionError, UsageError
from upwell.ground.text.safe import boundary
from upwell.ground.text.tokens import exceeds
from upwell.ground.types import Budget, Compressed, Omission, Passage

PROGRESSIVE_FOOTER_TOKEN = "\n---\n[progressive: chars="

DEFAULT_CHUNK_CHARS = 4_000
_FOOTER = re.compile(re.escape(PROGRESSIVE_FOOTER_TOKEN) + r"(\d+)\]\Z")
_FOOTER_ROOM = len(PROGRESSIVE_FOOTER_TOKEN) + 12


def chunk(text: str, offset: int = 0, limit: int = DEFAULT_CHUNK_CHARS) -> str:
    """The characters of `text` from `offset`, at most `limit` of them, and the footer.

    Ends after a paragraph, line or word where there is one in the second half, never inside a
    grapheme. At the end of `text` the chunk is empty but for the footer.

    Raises:
        UsageError: `offset` lies outside of the text, or `limit` is not positive.
    """
    if not 0 <= offset <= len(text):
        raise UsageError(
            f"offset {offset:,} is outside of the text", hint=f"it has {len(text):,} characters"
        )
    if limit < 1:
        raise UsageError("a chunk needs room for a character", hint="give a limit of 1 or more")
    end = boundary(text, offset, offset + limit)
    return f"{text[offset:end]}{PROGRESSIVE_FOOTER_TOKEN}{end - offset}]"


def content(piece: str) -> str:
    """What a chunk says, without its footer.

    Raises:
        UsageError: it does not end with a footer that agrees with it.
    """
    match = _FOOTER.search(piece)
    if match is None or int(match.group(1)) != match.start():
        raise UsageError("this is not a progressive chunk", hint="pass chunks unchanged")
    return piece[: match.start()]


def rejoin(chunks: Iterable[str]) -> str:
    """The original, from all its chunks in order."""
    return "".join(content(piece) for piece in chunks)


def within(text: str, offset: int, room: Room) -> str:
    """The longest chunk from `offset`, of a length found by halving, that `room` holds.

    Raises:
        CompressionError: not even one character and the footer fit.
    """
    limit = min(len(text) - offset, DEFAULT_CHUNK_CHARS * 16)
    if room.chars < limit + _FOOTER_ROOM:
        limit = int(room.chars) - _FOOTER_ROOM
    while limit > 0:
        piece = chunk(text, offset, limit)
        if len(piece) <= room.chars and not (
            room.tokens < len(piece) and exceeds(piece, int(room.tokens))
        ):
            return piece
        limit = limit * 3 // 4
    raise CompressionError("no room for a chunk and its footer", strategy="progressive")


class Progressive:
    """The first chunk; `read_more(key, offset)` gives the others."""

    name = "progressive"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return bool(passage.key)

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        text = passage.text
        if not text:
            return outcome(passage, Fitted(chunk(text)), self.name, lossless=True)
        piece = within(text, 0, Room.of(budget))
        missing = len(text) - len(content(piece))
        left = (Omission(what="characters", count=missing, total=len(text)),) if missing else ()
        return outcome(passage, Fitted(piece, left), self.name, lossless=not missing)
