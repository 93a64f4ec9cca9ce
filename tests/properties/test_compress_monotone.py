"""A larger budget keeps what a smaller one keeps, but a new section may cost one heading."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tables import expand

from upwell.compress import compress

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
queries = st.sampled_from(["", "value 17", "name of id 5", "error"])


def records(number: int) -> str:
    data = [
        {"id": n, "name": f"name-{n}", "value": {"x": f"v{n * 31}", "note": "word " * (n % 9)}}
        for n in range(number)
    ]
    return json.dumps(data)


@pytest.mark.parametrize("rows", [5, 7])
def test_each_further_character_keeps_the_values_of_json(rows: int) -> None:
    before: set[str] = set()
    for limit in range(30, 300):
        after = values(expand(json.loads(compress(records(rows), max_chars=limit).text)))
        assert before <= after, f"{before - after} disappears at {limit} characters"
        before = after


@QUICK
@given(st.integers(5, 60), st.integers(30, 2_000), st.integers(0, 1_500), queries)
def test_a_larger_budget_keeps_the_values_of_json(
    rows: int, small: int, more: int, query: str
) -> None:
    text = records(rows)
    less = compress(text, max_chars=small, query=query)
    much = compress(text, max_chars=small + more, query=query)
    assert values(expand(json.loads(less.text))) <= values(expand(json.loads(much.text)))


def values(found: object) -> set[str]:
    """The values of a document. A long note may be cut, so only whole values count."""
    if isinstance(found, dict):
        return {f"{key}={value}" for key, inner in found.items() for value in values(inner)}
    if isinstance(found, list):
        return {value for inner in found for value in values(inner)}
    return set() if "…" in str(found) else {str(found)}


@QUICK
@given(st.integers(20, 150), st.integers(30, 2_000), st.integers(0, 1_500), queries)
def test_a_larger_budget_keeps_the_lines(rows: int, small: int, more: int, query: str) -> None:
    lines = [
        f"unique{n} {'value' if n % 7 else 'error'} {n * 17} {'w' * (n % 40)}" for n in range(rows)
    ]
    text = "\n".join(lines)
    less = set(compress(text, max_chars=small, query=query).text.split("\n"))
    much = set(compress(text, max_chars=small + more, query=query).text.split("\n"))
    assert (less & set(lines)) - much == set()


@QUICK
@given(st.integers(3, 30), st.integers(60, 2_500), st.integers(0, 1_500), queries)
def test_a_larger_budget_keeps_the_headings(parts: int, small: int, more: int, query: str) -> None:
    text = "\n".join(
        f"## Part {n}\n\nvalue {n} of part {n}. " + "More. " * 60 for n in range(parts)
    )
    less = compress(text, max_chars=small, query=query).text
    much = compress(text, max_chars=small + more, query=query).text
    # A section that fits only now may displace one other heading, but never the answer.
    lost = [n for n in range(parts) if f"## Part {n}\n" in less and f"## Part {n}\n" not in much]
    assert len(lost) <= 1
    assert not (query == "value 17" and "value 17 of" in less) or "value 17 of" in much
