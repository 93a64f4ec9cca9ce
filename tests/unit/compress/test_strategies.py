"""The promises of each strategy, and the choices of `auto`."""

import json
from typing import Any

import pytest
from tests.tables import expand

from upwell.compress import STRATEGIES, compress, strategies
from upwell.compress.base import Fitted, Tools, outcome
from upwell.ground.errors import UsageError
from upwell.ground.types.compression import Budget, Compressed, Passage

MARKDOWN = "\n".join(
    f"## Part {n}\n\nFirst line of part {n}.\n\n" + f"Filler sentence {n} goes on and on. " * 12
    for n in range(12)
)
API = "\n".join(
    f"## Users {n}\n\nGET /users/{n} lists things.\n\n" + "More words about it. " * 20
    for n in range(8)
)
ROWS: list[dict[str, Any]] = [
    {"id": n, "name": f"row {n}", "nested": {"deep": n, "text": "x" * 30}} for n in range(60)
]
TABLE = {
    "array": (json.dumps(ROWS), "schema_pruning"),
    "dict with a large array": (json.dumps({"total": 60, "items": ROWS}), "schema_pruning"),
    "nested dict": (
        json.dumps({f"k{n}": {"a": {"b": "y" * 90}} for n in range(9)}),
        "extract_fields",
    ),
    "two nested values": (
        json.dumps({k: {f"k{n}": "y" * 90 for n in range(30)} for k in ("config", "state")}),
        "extract_fields",
    ),
    "large array in wrappers": (
        json.dumps({"status": "ok", "data": {"items": ROWS}}),
        "schema_pruning",
    ),
    "nested dict in a wrapper": (
        json.dumps({"cfg": {f"k{n}": {"a": {"b": "y" * 90}} for n in range(9)}}),
        "extract_fields",
    ),
    "simple dict": (json.dumps({f"k{n}": "z" * 60 for n in range(30)}), "truncate"),
    "short array": (json.dumps([{"a": "z" * 200} for _ in range(5)]), "truncate"),
    "api docs": (API, "skeleton"),
    "markdown": (MARKDOWN, "hybrid"),
    "text": ("just some words in a line\n" * 200, "truncate"),
}


@pytest.mark.parametrize("case", TABLE)
def test_auto_chooses_by_the_table_of_the_seed(case: str) -> None:
    text, strategy = TABLE[case]
    assert compress(text, max_chars=len(text) // 4).strategy == strategy
    assert compress(text, max_chars=len(text)).strategy == "none"


def headline(passage: Passage, budget: Budget, tools: Tools) -> Compressed:
    """A strategy that a contributor adds."""
    return outcome(passage, Fitted('"headline"'), "headline")


@pytest.mark.parametrize("case", ["array", "text"])
def test_auto_uses_a_new_strategy_that_the_table_names(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STRATEGIES, "headline", f"{__name__}:headline")
    monkeypatch.setattr(strategies, "choose", lambda passage, root: "headline")
    text, _ = TABLE[case]
    result = compress(text, max_chars=len(text) // 4)
    assert (result.text, result.strategy) == ('"headline"', "headline")


def test_number_lexemes_and_duplicate_keys_survive() -> None:
    text = '{"a": 1.10, "a": 123456789012345678901234567890, "b": 1E400, "c": "%s"}' % ("x" * 900)
    retained = compress(text, max_chars=300).text
    assert '"a": 1.10' in retained
    assert "123456789012345678901234567890" in retained
    assert "1E400" in retained


def test_extract_fields_keeps_every_top_level_key() -> None:
    text = json.dumps({f"key{n}": {"inner": f"v{n}", "more": {"a": "w" * 90}} for n in range(20)})
    result = compress(text, max_chars=len(text) * 2 // 3, strategy="extract_fields")
    assert set(json.loads(text)) <= set(json.loads(result.text))


def test_schema_pruning_keeps_the_schema() -> None:
    result = compress(json.dumps(ROWS), max_chars=600, strategy="schema_pruning")
    first = expand(json.loads(result.text))[0]
    assert set(first) >= {"id", "name", "nested"}
    assert set(first["nested"]) >= {"deep", "text"}
    assert "left out" in result.text


@pytest.mark.parametrize("strategy", ["hybrid", "skeleton"])
def test_headings_are_kept(strategy: str) -> None:
    result = compress(MARKDOWN, max_chars=len(MARKDOWN) // 4, strategy=strategy)
    assert [n for n in range(12) if f"## Part {n}\n" not in result.text] == []


def test_skeleton_keeps_first_lines() -> None:
    result = compress(MARKDOWN, max_chars=len(MARKDOWN) // 4, strategy="skeleton")
    assert [n for n in range(12) if f"First line of part {n}." not in result.text] == []


def test_an_unknown_strategy_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="truncate"):
        compress("text", strategy="trunkate")


@pytest.mark.parametrize(("max_chars", "least"), [(400, 200), (2, 0)])
def test_a_cut_json_string_counts_its_missing_characters(max_chars: int, least: int) -> None:
    text = json.dumps("word " * 300)
    result = compress(text, max_chars=max_chars)
    shown = len(json.loads(result.text).partition("…")[0])
    (omission,) = result.omitted
    assert shown >= least
    assert omission.total == len(text) - len('""')
    assert omission.count == omission.total - shown
