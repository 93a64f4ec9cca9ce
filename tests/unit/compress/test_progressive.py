"""Chunks: the canonical footer, offsets, safe edges, and rejoining whatever the content."""

import pytest

from upwell.compress.compressor import Compressor
from upwell.compress.fitted import Room
from upwell.compress.progressive import (
    PROGRESSIVE_FOOTER_TOKEN,
    chunk,
    content,
    rejoin,
    within,
)  # fmt: skip
from upwell.ground.errors import UsageError
from upwell.ground.types import Budget, Passage

NASTY = "a\n---\n[progressive: chars=3]\r\n\0é👩‍👩‍👧‍👦🇩🇪\n---\n[progressive: chars="


def test_the_token_is_the_seeds() -> None:
    assert PROGRESSIVE_FOOTER_TOKEN == "\n---\n[progressive: chars="


def test_every_chunk_ends_with_the_footer_the_last_too() -> None:
    assert chunk("abcdef", 0, 3) == "abc\n---\n[progressive: chars=3]"
    assert chunk("abcdef", 3, 30) == "def\n---\n[progressive: chars=3]"
    assert chunk("", 0) == "\n---\n[progressive: chars=0]"


@pytest.mark.parametrize("text", ["", "x", NASTY, NASTY * 40, "e\u0301" * 50, "line\r\n" * 50])
@pytest.mark.parametrize("limit", [1, 2, 7, 50, 10_000])
def test_chunks_rejoin(text: str, limit: int) -> None:
    chunks = []
    offset = 0
    while True:
        chunks.append(chunk(text, offset, limit))
        offset += len(content(chunks[-1]))
        if offset >= len(text):
            break
    assert rejoin(chunks) == text


def test_edges_fall_on_lines_where_they_can_and_never_inside_a_grapheme() -> None:
    assert content(chunk("first line\nsecond line\n", 0, 15)) == "first line\n"
    assert content(chunk("ab👩‍👩‍👧‍👦cd", 0, 5)) == "ab"
    assert content(chunk("a\r\nb", 0, 2)) == "a"


def test_an_offset_outside_of_the_text_is_an_error() -> None:
    with pytest.raises(UsageError):
        chunk("abc", 4)


def test_a_chunk_fits_its_room_in_characters_and_tokens() -> None:
    text = "some words on a line\n" * 500
    assert len(within(text, 0, Room(chars=300))) <= 300
    assert Room(tokens=60).holds(within(text, 21, Room(tokens=60)))


def test_without_a_key_there_is_nothing_to_read_on_with() -> None:
    passage = Passage(text="words\n" * 400)
    result = Compressor().compress(passage, Budget(max_chars=200, floor=0.65), "progressive")
    assert result.strategy != "progressive" or result.key == ""
    keyed = Passage(text="words\n" * 400, key="abc")
    first = Compressor().compress(keyed, Budget(max_chars=200, floor=0.65), "progressive")
    assert first.strategy == "progressive"
    assert first.text.endswith("]")
    assert first.omitted[0].what == "characters"
