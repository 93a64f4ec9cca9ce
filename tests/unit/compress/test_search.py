"""Searching an original gives places that can be read on from."""

import json

from upwell.compress.fitted import Room
from upwell.compress.search import search_original


def test_lines_come_with_the_offset_where_they_stand() -> None:
    text = "\n".join(f"line {n} about nothing" for n in range(300)) + "\nthe zebra crossed\n"
    found = search_original(text, "zebra", Room(chars=200))
    place, *said = found.text.splitlines()
    assert place == f"[offset {text.index('line 298')}] line 299"
    assert said == ["line 298 about nothing", "line 299 about nothing", "the zebra crossed"]


def test_places_that_touch_are_one_and_those_apart_are_not() -> None:
    rows = [f"row {n}" for n in range(100)]
    rows[20] = rows[21] = rows[70] = "a zebra"
    found = search_original("\n".join(rows), "zebra", Room(chars=900))
    assert (found.shown, found.total) == (2, 2)
    assert found.text.count("[offset") == 2


def test_json_values_come_with_their_path() -> None:
    text = json.dumps([{"id": n, "owner": {"login": f"user{n}"}} for n in range(50)])
    found = search_original(text, "owner login user33", Room(chars=300))
    first = found.text.splitlines()[0]
    assert 'owner login: "user33"' in first
    assert f"[offset {text.index('"user33"')}]" in first


def test_nothing_found_is_nothing_shown() -> None:
    assert search_original("some words", "zebra", Room()).total == 0
    assert search_original("some words", "", Room()).text == ""
