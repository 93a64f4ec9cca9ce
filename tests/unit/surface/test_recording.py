"""Decisions that leave no record: trials of `upwell setup`, and events in excluded projects."""

import pytest

from upwell.ground.ledger import TtlStore
from upwell.ground.pause import ProjectOptions
from upwell.ground.types.cue import PROBE_SESSIONS, Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall

HIT = Hit(memory=Memory(id="m", text="The kettle whistles in B flat", content_hash="h"), score=0.9)
OPTIONS = PipelineOptions(
    surface=SurfaceOptions(moments="all"),
    is_excluded=ProjectOptions(exclude=("/srv/secret",)).excludes,
)


class Stage:
    def __init__(self) -> None:
        self.surfacer = Surfacer(FakeRecall([HIT]), TtlStore(), OPTIONS)

    async def records(self) -> tuple[int, int]:
        """The number of decisions and of counters."""
        learning = self.surfacer._learning
        decisions = await self.surfacer.journal.latest(9)
        return len(decisions), len(await learning.counts.since(1))


def cue(door: Door, session: str, cwd: str = "/srv/shop") -> Cue:
    text = "startup" if door is Door.SESSION else "which note does the kettle whistle?"
    return Cue(door=door, text=text, session=session, cwd=cwd)


@pytest.mark.parametrize("door", [Door.SESSION, Door.PROMPT])
async def test_a_trial_of_setup_is_not_recorded(door: Door) -> None:
    stage = Stage()
    event = cue(door, f"{PROBE_SESSIONS}1a2b")
    outcome = await stage.surfacer.surface(event)
    if isinstance(outcome, Surfacing):
        await stage.surfacer.deliveries.cut(outcome, event, omitted=1)
        await stage.surfacer.deliveries.take_back(outcome, event)
    assert await stage.records() == (0, 0)
    await stage.surfacer.surface(cue(door, "another"))
    decisions, counters = await stage.records()
    assert decisions == 1
    assert counters


async def test_a_preview_is_not_recorded_and_ignores_the_session() -> None:
    stage = Stage()
    event = cue(Door.PROMPT, "s")
    for _ in range(2):
        assert isinstance(await stage.surfacer.preview(event), Surfacing)
    excluded = await stage.surfacer.preview(cue(Door.PROMPT, "s", "/srv/secret"))
    assert isinstance(excluded, Skip)
    assert excluded.reason is SkipReason.EXCLUDED_PROJECT
    assert await stage.records() == (0, 0)
    assert isinstance(await stage.surfacer.surface(event), Surfacing)


async def test_an_excluded_project_gets_nothing_and_leaves_no_record() -> None:
    stage = Stage()
    for door in (Door.SESSION, Door.PROMPT, Door.TOOL):
        outcome = await stage.surfacer.surface(cue(door, "s", "/srv/secret/src"))
        assert isinstance(outcome, Skip)
        assert outcome.reason is SkipReason.EXCLUDED_PROJECT
    assert await stage.records() == (0, 0)


async def test_a_question_in_an_excluded_project_is_answered_without_a_record() -> None:
    stage = Stage()
    outcome = await stage.surfacer.surface(cue(Door.ASK, "s", "/srv/secret"))
    assert isinstance(outcome, Surfacing)
    assert await stage.records() == (0, 0)


async def test_an_answer_to_a_question_is_no_surfacing() -> None:
    stage = Stage()
    assert isinstance(await stage.surfacer.surface(cue(Door.ASK, "s")), Surfacing)
    assert isinstance(await stage.surfacer.surface(cue(Door.PROMPT, "t")), Surfacing)
    await stage.surfacer.journal.flush()
    counts = await stage.surfacer._learning.counts.since(1)
    from upwell.usage.report import stats_of, whole

    stats = stats_of(counts)
    assert (stats.decisions, stats.surfaced, stats.memories) == (1, 1, 1)
    assert (stats.asked, stats.answered) == (1, 1)
    total = whole(counts)
    assert (total.totals["events"], total.totals["asked"], total.totals["spoke"]) == (1, 1, 1)
