"""Arrays of similar objects become tables."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.tables import expand

from upwell.compress import compress


def fitted(value: Any, max_chars: int, query: str = "") -> Any:
    return json.loads(compress(json.dumps(value), max_chars=max_chars, query=query).text)


def orders(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "id": f"order-{n}",
            "state": "open",
            "total": {"net": n * 7},
            "note": f"{n} " + "word " * 18,
        }
        | more
        for n in range(count)
    ]


def test_keys_and_constant_values_are_written_once() -> None:
    retained = fitted(orders(60), 1_500)
    assert retained[0]["…"] == "table"
    assert retained[0]["same"]["state"] == "open"
    assert retained[0]["columns"][:2] == ["id", "total.net"]
    assert retained[2:4] == [["order-1", 7], ["order-2", 14]]
    assert "shortened" in retained[-1]["…"]


def test_an_absent_key_differs_from_one_left_out() -> None:
    rows = orders(40)
    for row in rows[::3]:
        del row["total"]
        row["size"] = "large"
    retained = fitted(rows, 1_800)
    assert retained[0]["∅"] == "no such key"
    assert all("total" not in row for row in expand(retained)[::3])
    assert all(row["total"]["net"] == 7 * n for n, row in enumerate(expand(retained)) if n % 3)


def test_a_nested_array_of_one_becomes_a_column() -> None:
    rows = [
        {"name": f"n{n}", "hosts": [{"ip": f"10.0.0.{n}"}], "x": f"{n} " + "y" * 99}
        for n in range(30)
    ]
    retained = fitted(rows, 900)
    assert retained[0]["columns"][:2] == ["name", "hosts.0.ip"]
    assert expand(retained)[7] == {"name": "n7", "hosts": [{"ip": "10.0.0.7"}]}


def test_a_requested_value_is_written_with_its_name() -> None:
    rows = orders(80)
    rows[57]["note"] = "delivered to the neighbour"
    retained = expand(fitted(rows, 900, "what is the note of order-57?"))
    (collected,) = [row for row in retained if row.get("id") == "order-57"]
    assert collected["note"] == "delivered to the neighbour"


def test_a_source_with_our_signs_gets_no_tables() -> None:
    for text in ("…", "∅"):
        assert "table" not in json.dumps(fitted(orders(60, mark=text), 1_500))


def test_few_rows_keep_their_names() -> None:
    assert "columns" not in json.dumps(fitted(orders(60), 150))


values = st.one_of(st.integers(-9, 999), st.text("abc xyz", max_size=30), st.none(), st.booleans())
items = st.fixed_dictionaries(
    {"key": values, "in": st.fixed_dictionaries({"b": values}, optional={"c": values})},
    optional={"d": values, "e": st.lists(values, max_size=2), "f": st.lists(st.just({"g": 1}))},
)


LISTS: list[dict[str, Any]] = [
    {"key": 0, "in": {"b": 0}},
    {"key": 0, "in": {"b": 0}},
    {"key": 0, "in": {"b": None}, "e": [0]},
    {"key": 0, "in": {"b": None}, "d": 0, "f": [], "e": [""]},
    {"key": None, "in": {"b": None}, "d": None, "f": [], "e": [0]},
]


@settings(max_examples=150, deadline=None)
@example(rows=LISTS, size=179, query="")
@given(
    st.lists(items, min_size=1, max_size=30),
    st.integers(20, 900),
    st.sampled_from(["", "d", "xyz"]),
)
def test_every_shown_value_is_in_the_source(
    rows: list[dict[str, Any]], size: int, query: str
) -> None:
    sources = iter(rows)
    for retained in expand(fitted(rows, size, query)):
        assert any(_within(retained, row) for row in sources), retained


def _within(part: Any, whole: Any) -> bool:
    """True if `whole` contains everything in `part`."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _within(inner, whole[key]) for key, inner in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        left = iter(whole)
        return all(any(_within(inner, other) for other in left) for inner in part)
    return (type(part) is type(whole) and part == whole) or "…" in str(part)


def pods(count: int) -> list[dict[str, Any]]:
    return [
        {
            "metadata": {
                "generateName": f"api-{n % 7}-",
                "labels": {"app": "api"},
                "name": f"api-{n % 7}-{n:03}",
                "owner": {"name": f"set-{n}"},
            },
            "status": {"phase": "Running", "ready": n % 20 != 5, "restarts": n % 3},
        }
        | ({"error": {"reason": f"crash {n}", "message": "back-off 5m"}} if n % 20 == 5 else {})
        for n in range(count)
    ]


@pytest.mark.parametrize("query", ["", "which pods crash?"])
@pytest.mark.parametrize("max_chars", [900, 1_500, 3_000])
def test_a_record_keeps_its_name_whatever_is_kept_of_it(max_chars: int, query: str) -> None:
    text = compress(json.dumps(pods(60)), max_chars=max_chars, query=query).text
    retained = json.loads(text)
    assert "crash 5" in text
    columns = retained[0].get("columns") if retained[0].get("…") == "table" else None
    assert columns is None or columns[0] == "metadata.name"
    for row in retained:
        if isinstance(row, dict) and "…" not in row:
            assert "name" in row["metadata"]


def test_the_name_of_a_row_is_its_own_and_not_its_owners() -> None:
    retained = fitted(pods(60), 4_000)
    assert retained[0]["columns"][0] == "metadata.name"


def test_a_record_without_a_plain_name_keeps_the_key_that_ends_in_one() -> None:
    commits = [
        {
            "authoredDate": f"2026-02-{n:02}",
            "messageBody": "words " * 40,
            "messageHeadline": f"Lift crane {n}",
            "oid": f"{n:040x}",
        }
        for n in range(1, 9)
    ]
    text = compress(json.dumps({"commits": commits, "title": "Cranes"}), max_chars=1_100).text
    assert all(f"Lift crane {n}" in text for n in range(1, 9))


@pytest.mark.parametrize("query", ["which record has value 74 in prod?", "what is the region?"])
def test_with_a_question_too_a_value_of_all_rows_is_written_once(query: str) -> None:
    records = [
        {
            "env": "prod",
            "n": n,
            "name": f"item-{n}",
            "note": f"value {n * 37 % 101}",
            "region": "eu",
        }
        for n in range(400)
    ]
    text = compress(json.dumps(records), max_chars=900, query=query).text
    retained = json.loads(text)
    assert retained[0]["…"] == "table"
    assert text.count('"prod"') <= 1
    assert text.count('"eu"') <= 1
    assert retained[0]["same"]["region"] == "eu"
    assert sum(item.get("region") == "eu" for item in expand(retained)) >= 4
