"""Searching an original gives offsets from which to read on."""

import json

from upwell.compress.base import RemainingBudget
from upwell.compress.selective import search_original


def test_lines_have_their_offset() -> None:
    text = "\n".join(f"line {n} about nothing" for n in range(300)) + "\nthe zebra crossed\n"
    result = search_original(text, "zebra", RemainingBudget(chars=200))
    position, *reply = result.text.splitlines()
    assert position == f"[offset {text.index('line 298')}] line 299"
    assert reply == ["line 298 about nothing", "line 299 about nothing", "the zebra crossed"]


def test_adjacent_matches_are_merged() -> None:
    rows = [f"row {n}" for n in range(100)]
    rows[20] = rows[21] = rows[70] = "a zebra"
    result = search_original("\n".join(rows), "zebra", RemainingBudget(chars=900))
    assert (result.shown, result.total) == (2, 2)
    assert result.text.count("[offset") == 2


def test_json_values_have_their_path() -> None:
    text = json.dumps([{"id": n, "owner": {"login": f"user{n}"}} for n in range(50)])
    result = search_original(text, "owner login user33", RemainingBudget(chars=300))
    first = result.text.splitlines()[0]
    assert 'owner login: "user33"' in first
    assert f"[offset {text.index('"user33"')}]" in first


def test_a_search_without_matches_is_empty() -> None:
    assert search_original("some words", "zebra", RemainingBudget()).total == 0
    assert search_original("some words", "", RemainingBudget()).text == ""
