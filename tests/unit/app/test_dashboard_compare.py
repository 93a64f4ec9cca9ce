"""The page that compares an original with the text that the agent saw."""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.app.test_cuts import shortened as shorten
from tests.unit.compress.test_marks import TEXTS, sums

from upwell.app import Settings, build
from upwell.app.dashboard.compare import MAX_LINES, compared, found, gaps_of
from upwell.app.dashboard.sessions import shortened
from upwell.compress import compress

LINES = 20_000
LOG = "\n".join(f"{number:05} ship {number * 7919 % 10_007} left" for number in range(LINES))
SHIPS = json.dumps(
    [
        {"id": n, "name": f"ship {n * 7919 % 10_007}", "port": {"berth": n % 40}, "note": "n" * 60}
        for n in range(1_400)
    ]
)
CODE = "".join(
    f"def berth_{n}(ship):\n    if ship.draught > {n * 7 % 13}:\n        return {{\n"
    f"            'free': ship.name,\n        }}\n\n"
    for n in range(600)
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


async def test_the_page_has_the_count_of_the_notice_and_marks_as_many_lines(
    tmp_path: Path,
) -> None:
    text = await comparison(tmp_path, CODE)
    count, total = map(int, re.findall(r"\d+", text["left_out"].replace(",", "")))
    assert total == CODE.count("\n")
    assert f"{text['left_out']} left out" in text["seen"].splitlines()[-1]
    gaps = [block for block in text["blocks"] if not block["seen"]]
    assert sum(gap["last"] - gap["first"] + 1 for gap in gaps) == count
    assert whole(text) == CODE
    lines = CODE.splitlines()
    for gap in gaps:
        assert gap["text"].splitlines() == lines[gap["first"] - 1 : gap["last"]]


async def test_only_the_beginning_of_a_long_original_is_shown(tmp_path: Path) -> None:
    text = await comparison(tmp_path, LOG)
    assert (text["is_cut"], text["is_rewritten"]) == (True, False)
    assert whole(text).count("\n") == MAX_LINES - 1
    assert LOG.startswith(whole(text))


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if text[0] not in "{["])
def test_the_gaps_of_every_kind_of_text_add_up_to_its_notice(name: str) -> None:
    original = TEXTS[name]
    for share in (2, 4, 10):
        done = compress(original, max_chars=len(original) // share)
        gaps = gaps_of(original, done.text)
        if done.lossless:
            continue
        assert gaps is not None
        marked = Counter(
            lines=sum(gap.last - gap.first for gap in gaps if not gap.end),
            characters=sum(gap.end - gap.start for gap in gaps if gap.end),
        )
        assert +marked == sums(done)


def test_the_gap_in_a_line_is_marked_in_it() -> None:
    original = "first\nthe quick brown fox\nlast\n"
    seen = "first\nthe  […12 chars] fox\nlast\n[12 of 31 characters left out]"
    text = compared(original, seen, "12 of 31 characters")
    assert [block["text"] for block in text["blocks"] if not block["seen"]] == ["quick brown "]
    assert whole(text) == original


def test_a_summary_is_compared_line_by_line() -> None:
    text = compared("}\nif a:\n}\nif b:\n}\n", "Two conditions.\nif b:\n}", "")
    assert text["is_rewritten"]
    assert omitted(text) == ["}\nif a:\n}"]


async def test_one_line_of_json_is_compared_value_by_value(tmp_path: Path) -> None:
    text = await comparison(tmp_path, SHIPS)
    assert "of 1,400 items" in text["left_out"]
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
    text = compared(original, f'[{head}, [1, 1], ["∅", 2]]', "")
    assert omitted(text) == ['"berth": 1']
    assert omitted(compared(original, '[{"berth": 1, "…": "+2 keys"}, "… +1 items"]', "")) == [
        '"id": 1',
        '"on": true',
        '{"id": 2, "berth": 1, "on": true}',
    ]


def test_a_clipped_value_is_shown_in_two_parts() -> None:
    story = "The harbour master counted the ships. " * 20
    text = compared(
        json.dumps({"a": 1, "story": story}), f'{{"a": 1, "story": "{story[:80]}…(+9)"}}', ""
    )
    (rest,) = omitted(text)
    assert json.loads(whole(text)) == {"a": 1, "story": story}
    assert len(rest) == len(story) - 80 + len('"\n}') - 2


def test_a_long_line_is_compared_word_by_word() -> None:
    words = [f"ship {number} left the harbour" for number in range(100)]
    text = compared(
        " ".join(words), f"{' '.join(words[:20])} [… 70 ships] {' '.join(words[90:])}", ""
    )
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
    text = compared(original, '[1, "a"] a a a ' * 2_000, "")
    assert time.process_time() - begun < 10
    assert len(text["blocks"]) <= 50_000
    assert len(whole(text)) <= 1_100_000
    assert text["is_cut"]
