"""The compressor does not trust a strategy: a result over budget goes to the next rung."""

import pytest

from upwell.compress import STRATEGIES
from upwell.compress.base import NO_TOOLS, Fitted, RemainingBudget, Tools, outcome
from upwell.compress.compressor import Compressor
from upwell.ground.types.compression import Budget, Compressed, Passage

TEXT = "Just a line of words that goes on.\n" * 90


class Generous:
    """A strategy with a defect: it returns half of the text, whatever the budget."""

    name = "generous"

    def __init__(self, tools: Tools = NO_TOOLS) -> None:
        self._tools = tools

    def fits(self, passage: Passage) -> bool:
        return True

    def compress(self, passage: Passage, budget: Budget) -> Compressed:
        return outcome(passage, Fitted(passage.text[: len(passage.text) // 2]), self.name)


@pytest.fixture(autouse=True)
def generous(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "generous", f"{__name__}:Generous")


@pytest.mark.parametrize("budget", [Budget(max_chars=500), Budget(hard_tokens=100)])
def test_a_result_over_budget_falls_to_the_next_rung(budget: Budget) -> None:
    result = Compressor().compress(Passage(text=TEXT), budget, "generous")
    assert result.tried[0].strategy == "generous"
    assert result.tried[0].outcome == "its result is over budget"
    assert result.strategy != "generous"
    assert RemainingBudget.of(budget).holds(result.text)


def test_a_result_within_budget_is_used() -> None:
    result = Compressor().compress(Passage(text=TEXT), Budget(max_chars=2_000), "generous")
    assert result.strategy == "generous"
