"""A smaller budget never keeps something that a larger one dropped."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upwell.compress import compress

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
queries = st.sampled_from(["", "value 17", "name of id 5", "error"])


@QUICK
@given(st.integers(5, 60), st.integers(30, 2_000), st.integers(0, 1_500), queries)
def test_json_values(rows: int, small: int, more: int, query: str) -> None:
    data = [
        {"id": n, "name": f"name-{n}", "value": {"x": f"v{n * 31}", "note": "word " * (n % 9)}}
        for n in range(rows)
    ]
    text = json.dumps(data)
    less = compress(text, max_chars=small, query=query)
    much = compress(text, max_chars=small + more, query=query)
    for n in range(rows):
        for value in (f'"id": {n},', f'"name-{n}"', f'"v{n * 31}"'):
            assert value not in less.text or value in much.text or much.lossless


@QUICK
@given(st.integers(20, 150), st.integers(30, 2_000), st.integers(0, 1_500), queries)
def test_lines(rows: int, small: int, more: int, query: str) -> None:
    lines = [
        f"unique{n} {'value' if n % 7 else 'error'} {n * 17} {'w' * (n % 40)}" for n in range(rows)
    ]
    text = "\n".join(lines)
    less = set(compress(text, max_chars=small, query=query).text.split("\n"))
    much = set(compress(text, max_chars=small + more, query=query).text.split("\n"))
    assert (less & set(lines)) - much == set()


@QUICK
@given(st.integers(3, 30), st.integers(60, 2_500), st.integers(0, 1_500), queries)
def test_markdown_headings(parts: int, small: int, more: int, query: str) -> None:
    text = "\n".join(
        f"## Part {n}\n\nvalue {n} of part {n}. " + "More. " * 60 for n in range(parts)
    )
    less = compress(text, max_chars=small, query=query).text
    much = compress(text, max_chars=small + more, query=query).text
    for n in range(parts):
        assert f"## Part {n}\n" not in less or f"## Part {n}\n" in much
