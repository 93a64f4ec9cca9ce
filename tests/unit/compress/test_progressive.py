"""Chunks: the canonical footer, offsets, safe cuts, and joining."""

import pytest

from upwell.compress.compressor import Compressor
from upwell.compress.progressive import (
    chunk,
    content,
)  # fmt: skip
from upwell.ground.errors import UsageError
from upwell.ground.types.compression import Budget, Passage


def test_chunks_end_at_lines_if_possible_and_never_inside_a_grapheme() -> None:
    assert content(chunk("first line\nsecond line\n", 0, 15)) == "first line\n"
    assert content(chunk("ab👩‍👩‍👧‍👦cd", 0, 5)) == "ab"
    assert content(chunk("a\r\nb", 0, 2)) == "a"


def test_an_offset_outside_the_text_is_an_error() -> None:
    with pytest.raises(UsageError):
        chunk("abc", 4)


def test_without_a_key_the_strategy_does_not_fit() -> None:
    passage = Passage(text="words\n" * 400)
    result = Compressor().compress(passage, Budget(max_chars=200, floor=0.65), "progressive")
    assert result.strategy != "progressive" or result.key == ""
    keyed = Passage(text="words\n" * 400, key="abc")
    first = Compressor().compress(keyed, Budget(max_chars=200, floor=0.65), "progressive")
    assert first.strategy == "progressive"
    assert first.text.endswith("]")
    assert first.omitted[0].what == "characters"
