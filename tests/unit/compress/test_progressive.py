"""Chunks: the canonical footer, offsets, safe cuts, and joining."""

import pytest

from upwell.compress.base import RemainingBudget
from upwell.compress.compressor import Compressor
from upwell.compress.progressive import (
    PROGRESSIVE_FOOTER_TOKEN,
    chunk,
    content,
    rejoin,
    within,
)  # fmt: skip
from upwell.ground.errors import UsageError
from upwell.ground.types.compression import Budget, Passage

NASTY = "a\n---\n[progressive: chars=3]\r\n\0é👩‍👩‍👧‍👦🇩🇪\n---\n[progressive: chars="


def test_the_footer_token_is_that_of_the_seed() -> None:
    assert PROGRESSIVE_FOOTER_TOKEN == "\n---\n[progressive: chars="


def test_every_chunk_ends_with_the_footer() -> None:
    assert chunk("abcdef", 0, 3) == "abc\n---\n[progressive: chars=3]"
    assert chunk("abcdef", 3, 30) == "def\n---\n[progressive: chars=3]"
    assert chunk("", 0) == "\n---\n[progressive: chars=0]"


@pytest.mark.parametrize("text", ["", "x", NASTY, NASTY * 40, "e\u0301" * 50, "line\r\n" * 50])
@pytest.mark.parametrize("limit", [1, 2, 7, 50, 10_000])
def test_joined_chunks_are_the_text(text: str, limit: int) -> None:
    chunks = []
    offset = 0
    while True:
        chunks.append(chunk(text, offset, limit))
        offset += len(content(chunks[-1]))
        if offset >= len(text):
            break
    assert rejoin(chunks) == text


def test_chunks_end_at_lines_if_possible_and_never_inside_a_grapheme() -> None:
    assert content(chunk("first line\nsecond line\n", 0, 15)) == "first line\n"
    assert content(chunk("ab👩‍👩‍👧‍👦cd", 0, 5)) == "ab"
    assert content(chunk("a\r\nb", 0, 2)) == "a"


def test_an_offset_outside_the_text_is_an_error() -> None:
    with pytest.raises(UsageError):
        chunk("abc", 4)


def test_a_chunk_fits_its_budget_in_characters_and_tokens() -> None:
    text = "some words on a line\n" * 500
    assert len(within(text, 0, RemainingBudget(chars=300))) <= 300
    assert RemainingBudget(tokens=60).holds(within(text, 21, RemainingBudget(tokens=60)))


def test_without_a_key_the_strategy_does_not_fit() -> None:
    passage = Passage(text="words\n" * 400)
    result = Compressor().compress(passage, Budget(max_chars=200, floor=0.65), "progressive")
    assert result.strategy != "progressive" or result.key == ""
    keyed = Passage(text="words\n" * 400, key="abc")
    first = Compressor().compress(keyed, Budget(max_chars=200, floor=0.65), "progressive")
    assert first.strategy == "progressive"
    assert first.text.endswith("]")
    assert first.omitted[0].what == "characters"
