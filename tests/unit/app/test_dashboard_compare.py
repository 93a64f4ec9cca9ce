"""The page that compares an original with the text that the agent saw."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.app.test_cuts import shortened as shorten

from upwell.app import Settings, build
from upwell.app.dashboard.compare import MAX_LINES, compared, found
from upwell.app.dashboard.sessions import shortened

LINES = 20_000
LOG = "\n".join(f"{number:05} ship {number * 7919 % 10_007} left" for number in range(LINES))
SHIPS = json.dumps(
    [
        {"id": n, "name": f"ship {n * 7919 % 10_007}", "port": {"berth": n % 40}, "note": "n" * 60}
        for n in range(1_400)
    ]
)
LARGE = 3_000_000


async def comparison(home: Path, original: str) -> dict[str, Any]:
    """The page of an original that upwell shortened."""
    app = await build(Settings(home=home, environment={}))
    try:
        await shorten(app, original)
        [cut] = await app.cuts.latest(1)
        page = await shortened(app, {"id": cut["id"]})
        assert page["session"] == "s"
        [text] = page["texts"]
        return dict(text)
    finally:
        await app.aclose()


def omitted(text: Mapping[str, Any]) -> list[str]:
    return [block["text"].strip(" \n,") for block in text["blocks"] if not block["seen"]]


def whole(text: Mapping[str, Any]) -> str:
    return "".join(block["text"] for block in text["blocks"])


async def test_the_lines_left_out_are_counted_in_the_whole_original(tmp_path: Path) -> None:
    text = await comparison(tmp_path, LOG)
    assert text["omitted"] > MAX_LINES
    assert (text["unit"], text["total"], text["is_cut"]) == ("line", LINES, True)
    assert sum(1 + block["text"].count("\n") for block in text["blocks"]) == MAX_LINES
    own = re.search(r"([\d,]+) of 20,000 lines left out", text["seen"])
    assert own
    assert text["omitted"] == int(own[1].replace(",", ""))


async def test_one_line_of_json_is_compared_value_by_value(tmp_path: Path) -> None:
    text = await comparison(tmp_path, SHIPS)
    assert (text["unit"], text["total"]) == ("value", 4 * 1_400)
    assert 0 < text["omitted"] < text["total"]
    assert '"…": "table"' in text["seen"]
    assert text["blocks"][0]["seen"]
    shown = {name for block in text["blocks"] if block["seen"] for name in _names(block["text"])}
    assert shown
    assert all(name in text["seen"] for name in shown)
    left_out = [name for part in omitted(text) for name in _names(part)]
    assert not [name for name in left_out if f'"{name}"' in text["seen"]]


def _names(text: str) -> list[str]:
    return re.findall(r"ship \d+", text)


def test_the_values_of_a_table_are_found_under_their_names() -> None:
    original = '[{"id": 1, "berth": 1, "on": true}, {"id": 2, "berth": 1, "on": true}]'
    head = '{"…": "table", "same": {"on": true}, "columns": ["at.berth", "id"]}'
    text = compared(original, f'[{head}, [1, 1], ["∅", 2]]')
    assert omitted(text) == ['"berth": 1']
    assert (text["omitted"], text["total"]) == (1, 6)
    assert omitted(compared(original, '[{"berth": 1, "…": "+2 keys"}, "… +1 items"]')) == [
        '"id": 1',
        '"on": true',
        '{"id": 2, "berth": 1, "on": true}',
    ]


def test_a_clipped_value_is_shown_in_two_parts() -> None:
    story = "The harbour master counted the ships. " * 20
    text = compared(
        json.dumps({"a": 1, "story": story}), f'{{"a": 1, "story": "{story[:80]}…(+9)"}}'
    )
    assert (text["omitted"], text["total"]) == (1, 2)
    (rest,) = omitted(text)
    assert json.loads(whole(text)) == {"a": 1, "story": story}
    assert len(rest) == len(story) - 80 + len('"\n}') - 2


def test_a_long_line_is_compared_word_by_word() -> None:
    words = [f"ship {number} left the harbour" for number in range(100)]
    text = compared(" ".join(words), f"{' '.join(words[:20])} [… 70 ships] {' '.join(words[90:])}")
    assert (text["unit"], text["omitted"], text["total"]) == ("word", 350, 500)
    assert omitted(text) == [" ".join(words[20:90])]
    assert whole(text) == " ".join(words)


@pytest.mark.parametrize(
    ("original", "seen", "marks"),
    [
        ("a b c d", "a d", "1001"),
        ("a x b x c x d", "a x d", "1100001"),
        ("a x b x c x d", "a [ x d", "1000011"),
        ("k b a", "a b", "011"),
        ("", "a", ""),
        ("a a a", "a a", "110"),
    ],
)
def test_items_are_found_in_order_and_as_often_as_they_occur(
    original: str, seen: str, marks: str
) -> None:
    found_marks = found(original.split(), seen.split())
    assert "".join("01"[mark] for mark in found_marks) == marks


@pytest.mark.parametrize(
    "original",
    [
        "[" + "1," * LARGE + "1]",
        "[" * LARGE,
        '{"a":' * (LARGE // 5),
        '["' + "\\" * LARGE,
        "a " * LARGE,
        '{"a":"' + "é\\u00e9 " * LARGE,
        "\n" * LARGE,
    ],
    ids=["values", "brackets", "objects", "escapes", "words", "one value", "lines"],
)
def test_the_comparison_of_a_large_text_takes_little_time_and_space(original: str) -> None:
    begun = time.process_time()
    text = compared(original, '[1, "a"] a a a ' * 2_000)
    assert time.process_time() - begun < 10
    assert len(text["blocks"]) <= 50_000
    assert len(whole(text)) <= 1_100_000
    assert text["is_cut"]
