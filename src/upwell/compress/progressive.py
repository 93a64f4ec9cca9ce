"""`progressive`: deliver a text in chunks, without losing a character.

Every chunk ends with the footer `\\n---\\n[progressive: chars=<n>]`, where `n` is the number of
characters of the original that the chunk delivers. Offsets count characters of the original from 0.
The next chunk begins at this chunk's offset plus `n`, and the text is complete when that sum is the
length of the original. To join chunks, take the text before the *last* `PROGRESSIVE_FOOTER_TOKEN`
of each chunk, because the content may contain the token too.
"""

import re
from collections.abc import Iterable

from upwell.compress.base import Fitted, RemainingBudget, Tools, outcome
from upwell.ground.errors import CompressionError, UsageError
from upwell.ground.text.safe import boundary
from upwell.ground.text.tokens import exceeds
from upwell.ground.types.compression import Budget, Compressed, Omission, Passage

PROGRESSIVE_FOOTER_TOKEN = "\n---\n[progressive: chars="

DEFAULT_CHUNK_CHARS = 4_000
_FOOTER = re.compile(re.escape(PROGRESSIVE_FOOTER_TOKEN) + r"(\d+)\]\Z")
_FOOTER_ROOM = len(PROGRESSIVE_FOOTER_TOKEN) + 12


def chunk(text: str, offset: int = 0, limit: int = DEFAULT_CHUNK_CHARS) -> str:
    """Return at most `limit` characters of `text` from `offset`, and the footer.

    If a paragraph ends in the second half of the chunk, the chunk ends there; if not, it ends after
    a line, sentence, clause or word. It does not end inside a grapheme, unless the grapheme alone
    exceeds `limit`. At the end of `text`, the chunk consists of the footer only.

    Raises:
        UsageError: `offset` is outside the text, or `limit` is not positive.
    """
    if not 0 <= offset <= len(text):
        raise UsageError(
            f"offset {offset:,} is outside the text", hint=f"the text has {len(text):,} characters"
        )
    if limit < 1:
        raise UsageError("a chunk needs room for a character", hint="use a limit of 1 or more")
    end = boundary(text, offset, offset + limit)
    return f"{text[offset:end]}{PROGRESSIVE_FOOTER_TOKEN}{end - offset}]"


def content(part: str) -> str:
    """Return the content of a chunk, without its footer.

    Raises:
        UsageError: the chunk does not end with a footer, or the footer's count is wrong.
    """
    match = _FOOTER.search(part)
    if match is None or int(match.group(1)) != match.start():
        raise UsageError("this is not a progressive chunk", hint="pass chunks unchanged")
    return part[: match.start()]


def rejoin(chunks: Iterable[str]) -> str:
    """Join all chunks of an original, which must be given in order."""
    return "".join(content(part) for part in chunks)


def within(text: str, offset: int, remaining: RemainingBudget) -> str:
    """Return a chunk from `offset` that fits `remaining`.

    Raises:
        CompressionError: there is no room for the footer and at least one character.
    """
    limit = min(len(text) - offset, DEFAULT_CHUNK_CHARS * 16)
    if remaining.chars < limit + _FOOTER_ROOM:
        limit = int(remaining.chars) - _FOOTER_ROOM
    while limit > 0:
        part = chunk(text, offset, limit)
        if len(part) <= remaining.chars and not (
            remaining.tokens < len(part) and exceeds(part, int(remaining.tokens))
        ):
            return part
        limit = limit * 3 // 4
    raise CompressionError("no room for a chunk and its footer", strategy="progressive")


def progressive(passage: Passage, budget: Budget, tools: Tools) -> Compressed:
    """Deliver the first chunk; `read_more(key, offset)` delivers the others."""
    text = passage.text
    if not text:
        return outcome(passage, Fitted(chunk(text)), "progressive", lossless=True)
    part = within(text, 0, RemainingBudget.of(budget))
    missing = len(text) - len(content(part))
    omitted = (Omission(what="characters", count=missing, total=len(text)),) if missing else ()
    return outcome(passage, Fitted(part, omitted), "progressive", lossless=not missing)
