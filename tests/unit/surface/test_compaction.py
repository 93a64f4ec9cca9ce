"""A session gets its memories again after its agent has lost the context."""

import pytest
from msgspec.structs import replace
from tests.unit.surface.test_session_start import NOW, Stage, note

from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Memory
from upwell.learn.feedback import MemoryUse, ScoreSample
from upwell.learn.implicit import Sighting, Uses
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import ManualClock

READ = Cue(door="tool", tool="Read", args={"file_path": "src/cache.py"}, session="s", cwd="/repo")
RULE = Memory(id="rule", text="Never push to main", pinned=True)


class Session(Stage):
    """A stage with a rule, a clock that moves and a TTL store that the tests can read."""

    def __init__(self, *memories: Memory, **options: object) -> None:
        super().__init__(*memories, rules=[RULE], **options)
        self.clock = ManualClock(NOW)
        self.ttl_store = TtlStore(clock=self.clock)
        self.surfacer = Surfacer(
            self.reader(),
            self.ttl_store,
            PipelineOptions(
                surface=SurfaceOptions(**{"moments": "all", "cooldown_seconds": 0, **options})
            ),
            clock=self.clock,
        )

    async def read(self, session: str = "s") -> list[str] | SkipReason:
        self.clock.advance(60)
        outcome = await self.surfacer.surface(replace(READ, session=session))
        return outcome.reason if isinstance(outcome, Skip) else ids(outcome)


def ids(outcome: Surfacing | Skip) -> list[str]:
    assert isinstance(outcome, Surfacing)
    return [hit.memory.id for hit in outcome.hits]


OLD = note("old", "The cache is keyed by tenant", age_days=900, namespace="default")


async def test_delivered_memories_may_be_given_again_after_a_compaction() -> None:
    stage = Session(OLD)
    assert await stage.read() == ["old"]
    assert await stage.read() is SkipReason.REPEATED
    await stage.surfacer.compacting("s")
    assert await stage.read() == ["old"]
    assert await stage.read() is SkipReason.REPEATED


@pytest.mark.parametrize("warned", [True, False], ids=["PreCompact came", "it did not"])
async def test_a_compacted_session_begins_with_its_rules_and_memories(warned: bool) -> None:
    stage = Session(OLD)
    await stage.begin()
    assert await stage.read() == ["old"]
    if warned:
        await stage.surfacer.compacting("s")
    again = await stage.begin("compact")
    assert ids(again) == ["rule", "old"]
    assert "From this session" in again.text
    assert await stage.read() is SkipReason.REPEATED
    assert ids(await stage.begin("compact")) == ["rule", "old"], "a second compaction"


async def test_the_commands_that_worked_come_back_after_a_compaction_only() -> None:
    surfacer = Surfacer(
        Session(OLD).reader(),
        TtlStore(clock=ManualClock(NOW)),
        PipelineOptions(
            commands_in=lambda path: ["make dock PUMP=1"] if path == "/s.jsonl" else []
        ),
        clock=ManualClock(NOW),
    )
    start = Cue(door="session", session="s", cwd="/repo", text="startup", transcript="/s.jsonl")
    begun = await surfacer.surface(start)
    assert "make dock" not in getattr(begun, "text", "")
    again = await surfacer.surface(replace(start, text="compact"))
    assert isinstance(again, Surfacing)
    assert "Commands that worked in this session:\n`make dock PUMP=1`" in again.text
    other = await surfacer.surface(replace(start, text="compact", transcript="/other.jsonl"))
    assert "make dock" not in getattr(other, "text", "")


async def test_commands_alone_open_a_compacted_session() -> None:
    clock = ManualClock(NOW)
    options = PipelineOptions(commands_in=lambda path: ["make dock PUMP=1"])
    surfacer = Surfacer(Stage().reader(), TtlStore(clock=clock), options, clock=clock)
    start = Cue(door="session", session="s", cwd="/repo", text="compact", transcript="/s.jsonl")
    outcome = await surfacer.offer(start)
    assert isinstance(outcome, Surfacing)
    assert ids(outcome) == []
    await surfacer.deliveries.delivered(outcome, start)
    await surfacer.deliveries.take_back(outcome, start)
    await surfacer.aclose()


async def test_used_memories_come_first_then_the_latest_and_no_ignored_ones() -> None:
    stage = Session(*(replace(OLD, id=entry, text=f"About {entry}") for entry in "abcd"))
    uses = Uses(stage.ttl_store)
    for at, (entry, use) in enumerate([("a", MemoryUse.USED), ("b", MemoryUse.IGNORED)]):
        sample = ScoreSample(surfacing="x", memory=entry, evidence=use, score=0.9, at=at)
        await uses.add([Sighting(tool="Read", sample=sample)])
    for entry in "abcd":
        stage.recall.hits = [hit for hit in stage.recall.hits if hit.memory.id == entry] or [
            replace(stage.recall.hits[0], memory=await stage.reader().known(entry))
        ]
        assert await stage.read() == [entry]
    assert ids(await stage.begin("compact")) == ["rule", "a", "d", "c"]


async def test_other_sessions_are_unaffected_and_deleted_memories_stay_deleted() -> None:
    stage = Session(OLD)
    assert await stage.read("s2") == ["old"]
    await stage.surfacer.compacting("s")
    assert await stage.read("s2") is SkipReason.REPEATED, "s2 was told, and has not forgotten"
    await stage.surfacer.compacting("s2")
    stage.memories = ()
    assert ids(await stage.begin("compact", session="s2")) == ["rule"]


async def test_rules_come_with_the_next_prompt_unless_the_session_is_opened_again() -> None:
    stage = Session()
    await stage.begin()
    prompt = Cue(door="prompt", text="How is the cache keyed these days?", session="s")
    assert isinstance(await stage.surfacer.surface(prompt), Skip)
    await stage.surfacer.compacting("s")
    assert ids(await stage.surfacer.surface(prompt)) == ["rule"]


async def test_a_session_without_a_name_has_nothing_to_forget() -> None:
    stage = Session(OLD)
    await stage.surfacer.compacting("")
    assert await stage.read("") == ["old"]
