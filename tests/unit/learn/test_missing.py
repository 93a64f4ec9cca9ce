"""Agents' remarks on missing content: stored in their words, without secrets, bounded."""

from upwell.ground.ledger import TtlStore
from upwell.learn.budgets import MAX_CHARS, SHOWN, Budgets, ResultReport

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
