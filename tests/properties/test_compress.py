"""Properties of compression for any text and any budget."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from upwell.compress import compress
from upwell.compress.progressive import chunk, rejoin
from upwell.ground.text.tokens import count

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=True),
    st.text(max_size=40),
    st.text('abc \n"\\é😀', min_size=300, max_size=700),
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=8),
        st.dictionaries(st.one_of(st.text(max_size=8), st.just("…")), inner, max_size=8),
    ),
    max_leaves=40,
)
line = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        ["# Title", "```", "| a | b |", "---", "ERROR failed", "", "    x = 1", "- item"]
    ),
)
texts = st.lists(line, max_size=60).map("\n".join)


@QUICK
@given(documents, st.integers(2, 400), st.sampled_from(["", "error title", "abc"]), st.booleans())
def test_json_stays_json_within_budget(
    document: object, budget: int, query: str, pretty: bool
) -> None:
    text = json.dumps(document, indent=2 if pretty else None, ensure_ascii=False)
    result = compress(text, max_chars=budget, query=query)
    assert len(result.text) <= max(budget, 0)
    if isinstance(document, dict | list):
        json.loads(result.text)


@QUICK
@given(texts, st.integers(0, 500), st.sampled_from(["", "title error"]))
def test_within_budget_never_larger_and_deterministic(text: str, budget: int, query: str) -> None:
    result = compress(text, max_chars=budget, query=query)
    assert len(result.text) <= budget
    assert len(result.text) <= len(text)
    assert compress(text, max_chars=budget, query=query) == result
    assert compress(result.text, max_chars=budget, query=query).text == result.text


@QUICK
@given(texts, st.integers(1, 120))
@example("# 0\n# 0\n𐀀\n0000000", 4)
def test_within_budget_in_tokens(text: str, budget: int) -> None:
    assert count(compress(text, max_tokens=budget).text) <= budget


@QUICK
@given(st.text(max_size=600) | st.just("a\n---\n[progressive: chars=3]b\r\n\0"), st.integers(1, 90))
def test_joined_chunks_are_the_text(text: str, limit: int) -> None:
    chunks, offset = [], 0
    while True:
        piece = chunk(text, offset, limit)
        chunks.append(piece)
        offset += int(piece.rsplit("chars=", 1)[1][:-1])
        if offset >= len(text):
            break
    assert rejoin(chunks) == text


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 17, 60])
def test_tiny_budgets_are_kept(budget: int) -> None:
    assert len(compress("# A\n\nsome words here\n" * 20, max_chars=budget).text) <= budget
