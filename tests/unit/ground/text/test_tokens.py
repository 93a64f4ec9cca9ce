"""The token estimate: additive, zero only for "", close to real tokenizers."""

import pytest

from upwell.ground.text.tokens import count, exceeds, weigh

REAL = {
    # counted once with tiktoken, the larger of o200k_base and cl100k_base
    "def parse(text: str) -> Node | None:\n    return Node(text)\n" * 20: 320,
    "The quick brown fox jumps over the lazy dog. " * 30: 301,
    '{"id": 1308968677, "state": "open", "title": "A test"},\n' * 20: 440,
    "2026-03-01T10:22:31.123Z INFO http GET /api/users 200 12ms\n" * 20: 540,
}


@pytest.mark.parametrize("text", REAL)
def test_the_estimate_is_close_and_rarely_too_low(text: str) -> None:
    assert 0.95 * REAL[text] <= count(text) <= 1.5 * REAL[text]


def test_nothing_has_no_tokens() -> None:
    assert count("") == 0
    assert not exceeds("", 0)


def test_parts_add_up() -> None:
    text = "def f(x):\n    return {'a': 1, 'b': [1, 2, 3]}\n"
    assert weigh(text * 10) == pytest.approx(10 * weigh(text), rel=0.05)


def test_a_long_text_is_known_to_exceed_without_reading_it_all() -> None:
    assert exceeds("word " * 1_000_000, 100)
    assert not exceeds("word " * 10, 100)


@pytest.mark.parametrize(
    "unit", ["\r\n", "\n\r", "\r", "\n", " \t", "\t ", " \n", "\t\n", " ", "\t"]
)
def test_no_mix_of_blanks_is_free(unit: str) -> None:
    """The longest tokens for blanks hold 128 characters of one kind, and four of two kinds."""
    assert count(unit * 40_000) >= len(unit) * 40_000 / (32 if len(unit) == 1 else 6)


@pytest.mark.parametrize("unit", [a + b for a in "{a0Z/\x01-\n" for b in "(eb9Q._ \r"])
def test_no_mix_of_characters_is_free(unit: str) -> None:
    assert count(unit * 20_000) >= 40_000 / 16


def test_indentation_and_windows_line_ends_cost_what_they_did() -> None:
    code = "def f(x):\n        if x:\n\t\treturn 1\n\n" * 50
    assert count(code.replace("\n", "\r\n")) <= 1.2 * count(code)
