"""The gain in one sentence."""

from pathlib import Path

import pytest
from tests.unit.app.test_cuts import LINES, shortened

from upwell.app import Settings, build
from upwell.app.reporting import gain, report_of, sentence
from upwell.usage.events import CountedEvent


@pytest.mark.parametrize(
    ("results", "words"),
    [(1, "1 long result became 94 % shorter."), (2, "2 long results became 94 % shorter.")],
)
def test_the_sentence_counts_in_english(results: int, words: str) -> None:
    total = {"results": results, "saved": 94, "before": 100, "net": 90, "money": None}
    said = sentence({"total": total, "days": 30})
    assert said == f"upwell kept 90 tokens out of the context in 30 days: {words}"


def test_nothing_shortened_is_said_plainly() -> None:
    assert sentence({"total": {"results": 0}, "days": 30}) == "Nothing was shortened yet."


def test_a_loss_is_said_as_a_loss() -> None:
    total = {"results": 1, "saved": 94, "before": 100, "net": -1_500, "money": -0.1}
    said = sentence({"total": total, "days": 30})
    assert said == (
        "upwell added 1,500 tokens more than it saved in 30 days, "
        "although 1 long result became 94 % shorter."
    )


async def test_all_that_upwell_costs_is_subtracted(tmp_path: Path) -> None:
    environment = {"UPWELL_AGENT__INPUT_PRICE": "2.0"}
    app = await build(Settings(home=tmp_path, environment=environment))
    try:
        await shortened(app, LINES)
        await app.cuts.flush()
        before = (await gain(app, 1))["total"]
        app.learning.listed("claude", 1_600)
        for kind, number in (("tokens_in", 200), ("tokens_out", 100), ("asked", 1)):
            app.learning.counts.add(CountedEvent.JUDGE, kind, by=number)
        app.learning.counts.add(CountedEvent.LESSON, "tokens_out", by=40)
        app.learning.counts.add(CountedEvent.LESSON, "millionths", by=5_000)
        figures = await gain(app, 1)
        total = figures["total"]
        assert (total["saved"], before["net"]) == (before["saved"], before["saved"])
        assert total["net"] == before["net"] - 1_600 - 300 - 40
        assert total["money"] == pytest.approx(before["money"] - 1_900 * 2e-6 - 0.005, abs=2e-4)
        assert [day["net"] for day in figures["by_day"]] == [total["net"]]
        lines = await report_of(app, 1)
        assert [line.split()[-2] for line in lines if line.startswith("  net ")] == [
            f"{total['net']:,}"
        ]
        assert [line.split()[-2] for line in lines if line.startswith("  own tools ")] == ["-1,600"]
    finally:
        await app.aclose()
