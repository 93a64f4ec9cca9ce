"""Budgets learned from reports, and remarks on what was missing: bounded, slow, forgettable."""

from collections.abc import Sequence
from typing import Any

import pytest

from upwell.ground.errors import StoreError
from upwell.ground.ledger import TtlStore
from upwell.learn.budgets import (
    MAX_CHARS,
    MAX_RATIO,
    MIN_RATIO,
    SHOWN,
    Budgets,
    ResultReport,
    ratio_of,
)


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


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


async def said(*texts: str) -> Budgets:
    budgets = Budgets(TtlStore(), enabled=True)
    for text in texts:
        await budgets.report("fs__read", ResultReport.MISSING_EXAMPLE, text)
    return budgets


async def test_remarks_are_stored_by_tool_and_discarded_with_the_counts() -> None:
    budgets = await said("the retry\nexample", "", "the retry example")
    missed = await budgets.missed()
    assert [(entry.kind, entry.text) for entry in missed["fs__read"]] == [
        ("missing_example", "the retry example")
    ]
    assert missed["fs__read"][0].at > 0
    assert await budgets.forget() == 2
    assert await budgets.missed() == {}


async def test_remarks_have_no_secrets_and_a_bounded_length() -> None:
    budgets = await said("x " * MAX_CHARS + SECRET, f"the line with {SECRET}")
    texts = [entry.text for entry in (await budgets.missed())["fs__read"]]
    assert all(len(text) <= MAX_CHARS for text in texts)
    assert SECRET not in "".join(texts)
    assert any(text.startswith("the line with [REDACTED:") for text in texts)


async def test_the_newest_are_shown() -> None:
    budgets = await said(*(f"part {n}" for n in range(SHOWN + 3)))
    texts = {entry.text for entry in (await budgets.missed())["fs__read"]}
    assert len(texts) == SHOWN
    assert f"part {SHOWN + 2}" in texts
