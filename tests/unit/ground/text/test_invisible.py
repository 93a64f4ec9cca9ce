"""Invisible characters are made visible."""

import json

import pytest

from upwell.ground.text.safe import visible, visible_json

HIDDEN = (
    "\x1b\x07\x7f\x9b\u200b\u202e\u2066\u034f\u115f\u3164\u2800\ufe01\ufffc\U000e0041\U000e0101"
)


@pytest.mark.parametrize("char", HIDDEN)
def test_each_is_shown(char: str) -> None:
    assert visible(f"a{char}b") == f"a\\u{ord(char):04x}b"


def test_ends_of_lines_become_spaces_and_forms_of_emoji_go() -> None:
    assert visible("a\u2028b\rc") == "a b c"
    assert visible("\u2764\ufe0f") == "\u2764"


@pytest.mark.parametrize("text", ["plain", "tab\tand\nline", "ñandú 日本 🌊", "e\u0301"])
def test_the_rest_stays(text: str) -> None:
    assert visible(text) == text


def test_json_stays_the_same_document() -> None:
    value = {"a" + HIDDEN: ["x" + HIDDEN]}
    shown = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not set(HIDDEN) & set(shown)
