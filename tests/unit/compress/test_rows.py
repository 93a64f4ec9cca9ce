"""Arrays of like objects, fitted as rows."""

import json
from typing import Any

from hypothesis import given, settings
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


def test_keys_are_said_once_and_what_is_the_same_once() -> None:
    kept = fitted(orders(60), 1_500)
    assert kept[0]["…"] == "table"
    assert kept[0]["same"]["state"] == "open"
    assert kept[0]["columns"][:2] == ["id", "total.net"]
    assert kept[2:4] == [["order-1", 7], ["order-2", 14]]
    assert "shortened" in kept[-1]["…"]


def test_a_key_that_an_item_lacks_is_told_from_one_that_was_left_out() -> None:
    rows = orders(40)
    for row in rows[::3]:
        del row["total"]
        row["size"] = "large"
    kept = fitted(rows, 1_800)
    assert kept[0]["∅"] == "no such key"
    assert all("total" not in row for row in expand(kept)[::3])
    assert all(row["total"]["net"] == 7 * n for n, row in enumerate(expand(kept)) if n % 3)


def test_an_array_of_one_in_each_item_is_looked_into() -> None:
    rows = [
        {"name": f"n{n}", "hosts": [{"ip": f"10.0.0.{n}"}], "x": f"{n} " + "y" * 99}
        for n in range(30)
    ]
    kept = fitted(rows, 900)
    assert kept[0]["columns"][:2] == ["name", "hosts.0.ip"]
    assert expand(kept)[7] == {"name": "n7", "hosts": [{"ip": "10.0.0.7"}]}


def test_what_was_asked_for_stands_by_its_name() -> None:
    rows = orders(80)
    rows[57]["note"] = "delivered to the neighbour"
    kept = expand(fitted(rows, 900, "what is the note of order-57?"))
    (found,) = [row for row in kept if row.get("id") == "order-57"]
    assert found["note"] == "delivered to the neighbour"


def test_a_source_with_our_signs_has_no_tables() -> None:
    for text in ("…", "∅"):
        assert "table" not in json.dumps(fitted(orders(60, mark=text), 1_500))


def test_few_rows_keep_their_names() -> None:
    assert "columns" not in json.dumps(fitted(orders(60), 150))


values = st.one_of(st.integers(-9, 999), st.text("abc xyz", max_size=30), st.none(), st.booleans())
items = st.fixed_dictionaries(
    {"key": values, "in": st.fixed_dictionaries({"b": values}, optional={"c": values})},
    optional={"d": values, "e": st.lists(values, max_size=2), "f": st.lists(st.just({"g": 1}))},
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(items, min_size=1, max_size=30),
    st.integers(20, 900),
    st.sampled_from(["", "d", "xyz"]),
)
def test_nothing_is_said_that_the_source_does_not_say(
    rows: list[dict[str, Any]], size: int, query: str
) -> None:
    wanted = iter(rows)
    for kept in expand(fitted(rows, size, query)):
        assert any(_within(kept, row) for row in wanted), kept


def _within(part: Any, whole: Any) -> bool:
    """Does `whole` hold everything that `part` says?"""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and _within(inner, whole[key]) for key, inner in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        left = iter(whole)
        return all(any(_within(inner, other) for other in left) for inner in part)
    return (type(part) is type(whole) and part == whole) or "…" in str(part)
