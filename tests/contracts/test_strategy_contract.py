"""The contract of every strategy, run over every strategy and every kind of text."""

import json

import pytest

from upwell.compress import STRATEGIES, compress, load
from upwell.compress.base import NO_TOOLS
from upwell.compress.compressor import MAY_EXCEED, Compressor
from upwell.compress.progressive import PROGRESSIVE_FOOTER_TOKEN
from upwell.ground.errors import CompressionError
from upwell.ground.text.kind import detect
from upwell.ground.types.compression import Budget, Passage

TEXTS = {
    "json array": json.dumps([{"id": n, "name": f"n{n}", "tags": ["a", "b"]} for n in range(80)]),
    "json object": json.dumps({f"key{n}": {"a": n, "b": "text " * 9} for n in range(30)}, indent=2),
    "json lines": "\n".join(json.dumps({"id": n, "message": "m" * 40}) for n in range(60)),
    "markdown": "\n".join(f"## Part {n}\n\nSome words. {'More. ' * 30}\n" for n in range(20)),
    "code": "import os\n\n"
    + "\n".join(f"def f{n}(a, b):\n    return a + {n}\n" for n in range(60)),
    "log": "\n".join(f"2026-01-01 10:00:{n % 60:02d} INFO step {n}" for n in range(120)),
    "diff": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n" + "+line\n-line\n" * 90,
    "csv": "id,name\n" + "\n".join(f"{n},name {n}" for n in range(200)),
    "html": "<!doctype html><html><body>" + "<p>Some words.</p>" * 120 + "</body></html>",
    "text": "Just a line of words that goes on.\n" * 90,
}
IMMEDIATE = [name for name in STRATEGIES if name not in {"none", *MAY_EXCEED}]
BUDGETS = [Budget(hard_chars=700), Budget(max_tokens=150), Budget(max_chars=900, hard_tokens=400)]


@pytest.mark.parametrize("strategy", ["none", *IMMEDIATE])
@pytest.mark.parametrize("case", TEXTS)
def test_a_text_within_budget_is_unchanged(strategy: str, case: str) -> None:
    passage = Passage(text=TEXTS[case], kind=detect(TEXTS[case]))
    result = load(strategy)(passage, Budget(max_chars=100_000), NO_TOOLS)
    assert result.text == passage.text
    assert result.lossless
    assert result.omitted == ()


@pytest.mark.parametrize("strategy", IMMEDIATE)
@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_result_is_within_budget_smaller_and_deterministic(
    strategy: str, case: str, budget: Budget
) -> None:
    passage = Passage(text=TEXTS[case], query="name n41")
    result = Compressor().compress(passage, budget, strategy)
    limits = [limit for limit in (budget.max_chars, budget.hard_chars) if limit is not None]
    assert len(result.text) <= min([*limits, len(passage.text)])
    token_limits = [limit for limit in (budget.max_tokens, budget.hard_tokens) if limit is not None]
    assert result.tokens <= min([*token_limits, 10**9])
    assert (result.before, result.after) == (len(passage.text), len(result.text))
    assert Compressor().compress(passage, budget, strategy) == result
    if case in ("json array", "json object"):
        assert is_json(result.text), f"JSON must stay JSON: raise CompressionError ({strategy})"
    if not result.lossless:
        assert result.omitted or case == "html"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("strategy", IMMEDIATE)
@pytest.mark.parametrize("case", TEXTS)
def test_a_strategy_by_itself_is_within_budget_or_refuses(strategy: str, case: str) -> None:
    passage = Passage(text=TEXTS[case], kind=detect(TEXTS[case]))
    try:
        result = load(strategy)(passage, Budget(max_chars=700), NO_TOOLS)
    except CompressionError:
        assert strategy not in ("auto", "truncate"), "these two take every text"
        return
    assert result.after <= 700
    assert strategy in (result.strategy, "auto")


@pytest.mark.parametrize("strategy", IMMEDIATE)
@pytest.mark.parametrize("case", TEXTS)
def test_a_shortened_text_marks_what_is_missing_and_names_its_key(strategy: str, case: str) -> None:
    passage = Passage(text=TEXTS[case], key="k3y")
    result = Compressor().compress(passage, Budget(max_chars=700), strategy)
    assert result.key == "k3y"
    # A progressive result is marked by its footer, and the gateway adds the key.
    if result.lossless or PROGRESSIVE_FOOTER_TOKEN in result.text:
        return
    assert result.omitted, "count what is missing: `outcome(passage, Fitted(text, omitted), name)`"
    assert "…" in result.text, "mark each omission in place, for example `[… 12 lines]`"
    assert "k3y" in result.text, "write `passage.key` into the text, so that the agent can read on"


def test_the_floor_raises_the_soft_budget_and_never_the_hard_one() -> None:
    text = TEXTS["text"]
    floored = Compressor().compress(Passage(text=text), Budget(max_chars=200, floor=0.65))
    assert floored.after >= 0.65 * len(text)
    hard = Budget(max_chars=200, hard_chars=500, floor=0.65)
    assert Compressor().compress(Passage(text=text), hard).after <= 500
    stored = Compressor().compress(Passage(text=text, key="k"), Budget(max_chars=200, floor=0.65))
    assert stored.after <= 200


def test_an_explicit_limit_is_hard() -> None:
    assert compress(TEXTS["log"], max_chars=300).after <= 300
    assert compress(TEXTS["log"], max_tokens=80).tokens <= 80
