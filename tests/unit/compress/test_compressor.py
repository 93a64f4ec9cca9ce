"""The compressor does not trust a strategy: if its result is over budget, a fallback is tried."""

import pytest

from upwell.compress import STRATEGIES
from upwell.compress.base import Fitted, RemainingBudget, Tools, outcome
from upwell.compress.compressor import Compressor
from upwell.ground.types.compression import Budget, Compressed, Passage

TEXT = "Just a line of words that goes on.\n" * 90


def generous(passage: Passage, budget: Budget, tools: Tools) -> Compressed:
    """A strategy with a defect: it returns half of the text, whatever the budget."""
    return outcome(passage, Fitted(passage.text[: len(passage.text) // 2]), "generous")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "generous", f"{__name__}:generous")


@pytest.mark.parametrize("budget", [Budget(max_chars=500), Budget(hard_tokens=100)])
def test_a_result_over_budget_falls_to_the_next_rung(budget: Budget) -> None:
    result = Compressor().compress(Passage(text=TEXT), budget, "generous")
    assert result.tried[0].strategy == "generous"
    assert result.tried[0].outcome == "its result is over budget"
    assert result.strategy != "generous"
    assert RemainingBudget.of(budget).holds(result.text)
