"""Budgets learned from feedback: bounded, slow to move, forgettable."""

from collections.abc import Sequence
from typing import Any

import pytest

from upwell.ground.errors import StoreError
from upwell.ground.ledger import TtlStore
from upwell.learn.budgets import MAX_RATIO, MIN_RATIO, Budgets, ResultReport, ratio_of


def test_few_reports_change_nothing() -> None:
    assert ratio_of("t", {ResultReport.TRUNCATED: 2}).ratio == 1.0


def test_loss_raises_and_length_lowers_within_bounds() -> None:
    assert ratio_of("t", {ResultReport.TRUNCATED: 3}).ratio > 1.0
    assert ratio_of("t", {ResultReport.TOO_LONG: 3}).ratio < 1.0
    assert ratio_of("t", {ResultReport.MISSING_EXAMPLE: 900}).ratio == MAX_RATIO
    assert ratio_of("t", {ResultReport.TOO_LONG: 900}).ratio == MIN_RATIO


def test_frequent_reading_on_raises_the_budget() -> None:
    assert ratio_of("t", {ResultReport.CAME_BACK: 10, ResultReport.SERVED: 20}).ratio > 1.0
    assert ratio_of("t", {ResultReport.CAME_BACK: 10, ResultReport.SERVED: 100}).ratio == 1.0


async def test_reports_are_counted_by_tool_and_forgotten() -> None:
    budgets = Budgets(TtlStore(), enabled=True)
    for _ in range(4):
        await budgets.report("fs__read", ResultReport.TRUNCATED)
        await budgets.report("gh__list", ResultReport.TOO_LONG)
    learned = {ratio.tool: ratio for ratio in await budgets.learned()}
    assert learned["fs__read"].ratio > 1.0 > learned["gh__list"].ratio
    assert await budgets.forget() == 2
    assert await budgets.learned() == []


class Unreadable(TtlStore):
    is_down = False

    async def scan(self, *args: Any, **more: Any) -> Sequence[Any]:
        if self.is_down:
            raise StoreError("the disk is gone")
        return await super().scan(*args, **more)


async def test_ratios_that_cannot_be_read_again_stay_in_use() -> None:
    ttl_store = Unreadable()
    budgets = Budgets(ttl_store, enabled=True)
    for _ in range(4):
        await budgets.report("fs__read", ResultReport.TRUNCATED)
    await budgets.load_learned()
    in_use = dict(budgets.ratios)
    assert in_use
    ttl_store.is_down = True
    with pytest.raises(StoreError):
        await budgets.load_learned()
    assert budgets.ratios == in_use
