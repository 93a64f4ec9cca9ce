import asyncio

import pytest
from msgspec.structs import replace

from upwell.ground.errors import RecallUnavailable, StoreUnwritable
from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Cue, Door, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory, Trust
from upwell.ground.types.rpc import Principal
from upwell.surface.options import IntentOptions, PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall, ManualClock
from upwell.usage.events import Events

EVERY_MOMENT = PipelineOptions(surface=SurfaceOptions(moments="all"))


def hit(identity="m1", score=0.9, text="the cache reloads on SIGHUP"):
    memory = Memory(id=identity, text=text, content_hash=f"h-{text}")
    return Hit(memory=memory, score=score, signals={"bm25": 7.0})


class Stage:
    def __init__(self, *hits, error=None, **surface):
        self.clock = ManualClock()
        self.recall = FakeRecall(hits, error)
        self.ttl_store = TtlStore(clock=self.clock)
        self.intent = IntentOptions()
        self.surface = SurfaceOptions(**{"moments": "all", **surface})

    def surfacer(self):
        options = PipelineOptions(surface=self.surface, intent=self.intent)
        return Surfacer(self.recall, self.ttl_store, options, clock=self.clock)


def read(path="src/cache.py", session="s"):
    return Cue(door="tool", tool="Read", args={"file_path": path}, session=session)


async def reason(surfacer, cue):
    outcome = await surfacer.surface(cue)
    assert isinstance(outcome, Skip), outcome
    return outcome.reason


async def test_a_surfacing_has_its_hits_and_their_signals():
    outcome = await Stage(hit(), hit("m2", 0.2, "unrelated")).surfacer().surface(read())
    assert isinstance(outcome, Surfacing)
    assert [memory.id for memory in outcome.memories] == ["m1"]
    assert outcome.confidence == 0.9
    assert outcome.signals == {"bm25": 7.0}
    assert [held.memory.id for held in outcome.held_back] == ["m2"]
    assert outcome.id in outcome.text


@pytest.mark.parametrize(
    ("cue", "expected"),
    [
        (Cue(door="prompt", text="thanks"), SkipReason.NOT_APPLICABLE),
        (Cue(door="tool", tool="Write", args={"file_path": "a.py"}), SkipReason.WRITE_TOOL),
        (Cue(door="tool", tool="fs__edit_file", args={"path": "a.py"}), SkipReason.WRITE_TOOL),
        (
            Cue(door="tool", tool="x__go", args={"q": "a b"}, annotations={"readOnlyHint": False}),
            SkipReason.WRITE_TOOL,
        ),
        (
            Cue(
                door="tool",
                tool="x__go",
                args={"q": "cache reload"},
                annotations={"destructiveHint": True},
            ),
            SkipReason.WRITE_TOOL,
        ),
        (Cue(door="tool", tool="ls", args={}), SkipReason.UNSUITABLE_QUERY),
    ],
)
async def test_gates_before_the_search(cue, expected):
    stage = Stage(hit())
    assert await reason(stage.surfacer(), cue) is expected
    assert stage.recall.asked == []


async def test_a_read_only_hint_outweighs_the_name():
    cue = Cue(
        door="tool",
        tool="x__updates",
        args={"query": "cache reload"},
        annotations={"readOnlyHint": True},
    )
    assert isinstance(await Stage(hit()).surfacer().surface(cue), Surfacing)


async def test_disabled():
    assert await reason(Stage(hit(), enabled=False).surfacer(), read()) is SkipReason.DISABLED


async def test_memories_written_by_tools_are_never_surfaced():
    from_tool = hit("m2")
    from_tool = replace(from_tool, memory=replace(from_tool.memory, trust=Trust.TOOL))
    asked = Cue(door="ask", text="how does the cache reload?", session="s")
    for cue in (read(), Cue(door="prompt", text="how does the cache reload?"), asked):
        alone = await Stage(from_tool).surfacer().surface(cue)
        assert isinstance(alone, Skip)
        assert alone.reason is SkipReason.NO_CANDIDATES
        beside = await Stage(from_tool, hit()).surfacer().surface(cue)
        assert [memory.id for memory in beside.memories] == ["m1"]


async def test_nothing_found_and_nothing_good_enough():
    assert await reason(Stage().surfacer(), read()) is SkipReason.NO_CANDIDATES
    low = await Stage(hit(score=0.3)).surfacer().surface(read())
    assert isinstance(low, Skip)
    assert low.reason is SkipReason.BELOW_MIN_SCORE
    assert low.confidence == 0.3


async def test_a_session_hears_nothing_twice_unless_it_asks():
    stage = Stage(hit())
    surfacer = stage.surfacer()
    assert isinstance(await surfacer.surface(read()), Surfacing)
    stage.clock.advance(604_800 + 60)
    assert await reason(surfacer, read()) is SkipReason.REPEATED
    ask = Cue(door="ask", text="when does the cache reload?", session="s")
    assert isinstance(await surfacer.surface(ask), Surfacing)


async def test_a_new_session_has_received_nothing_and_repeats_come_last():
    stage = Stage(hit("m1", 0.9), hit("m2", 0.8, text="something else entirely here"))
    surfacer = stage.surfacer()
    stage.recall.hits = stage.recall.hits[:1]
    await surfacer.surface(read())
    stage.recall.hits = [hit("m1", 0.9), hit("m2", 0.8, text="something else entirely here")]
    another = await surfacer.surface(read(session="another"))
    assert [memory.id for memory in another.memories] == ["m2", "m1"]
    stage.clock.advance(604_800)
    third = await surfacer.surface(read(session="third"))
    assert [memory.id for memory in third.memories] == ["m1", "m2"]


async def test_memories_are_new_to_another_principal():
    stage = Stage(hit())
    surfacer = stage.surfacer()
    ada = Principal("ada", ("decisions",))
    assert isinstance(await surfacer.surface(read()), Surfacing)
    outcome = await surfacer.surface(replace(read(session="hers"), principal=ada))
    assert isinstance(outcome, Surfacing)
    assert stage.recall.asked[-1].scope.namespaces == ("decisions",)
    again = replace(read("lib/cache.py", session="hers"), principal=ada)
    assert await reason(surfacer, again) is SkipReason.REPEATED
    await surfacer.deliveries.take_back(outcome, again)
    assert isinstance(await surfacer.surface(again), Surfacing)
    assert await reason(surfacer, read("lib/cache.py")) is SkipReason.REPEATED


async def test_an_edited_memory_is_new_again():
    stage = Stage(hit())
    surfacer = stage.surfacer()
    await surfacer.surface(read())
    stage.recall.hits = [hit(text="the cache reloads on SIGUSR1 now")]
    assert isinstance(await surfacer.surface(read("src/other.py")), Surfacing)


async def test_an_undelivered_memory_may_surface_again():
    stage = Stage(hit())
    surfacer = stage.surfacer()
    outcome = await surfacer.surface(read())
    await surfacer.deliveries.take_back(outcome, read())
    assert isinstance(await surfacer.surface(read("lib/cache.py")), Surfacing)


async def test_cooldown_is_for_the_same_question_within_seconds():
    stage = Stage(hit(), hit("m2", text="something else entirely here"))
    surfacer = stage.surfacer()
    await surfacer.surface(read())
    assert await reason(surfacer, read()) is SkipReason.COOLDOWN
    stage.clock.advance(5.1)
    assert await reason(surfacer, read()) is SkipReason.REPEATED


async def test_the_rate_is_per_session_across_tools():
    stage = Stage(rate_per_minute=2)
    surfacer = stage.surfacer()
    for number in range(2):
        stage.recall.hits = [hit(f"m{number}", text=f"note number {number}")]
        assert isinstance(await surfacer.surface(read(f"src/file{number}.py")), Surfacing)
    stage.recall.hits = [hit("m9", text="another note")]
    assert await reason(surfacer, read("src/third.py")) is SkipReason.RATE
    other = read("src/third.py", session="other")
    assert isinstance(await surfacer.surface(other), Surfacing)


async def test_an_undelivered_surfacing_counts_neither_for_rate_nor_for_cooldown():
    stage = Stage(hit(), rate_per_minute=1)
    surfacer = stage.surfacer()
    first = await surfacer.surface(read())
    assert await reason(surfacer, read("src/other.py")) is SkipReason.RATE
    await surfacer.deliveries.take_back(first, read())
    second = await surfacer.surface(read())
    assert isinstance(second, Surfacing), "neither the rate nor the cooldown counts it"
    stage.recall.hits = [hit("m2", text="another note")]
    assert await reason(surfacer, read("src/other.py")) is SkipReason.RATE


async def test_taking_one_surfacing_back_leaves_the_others_counted():
    stage = Stage(rate_per_minute=2)
    surfacer = stage.surfacer()
    outcomes = []
    for number in range(2):
        stage.recall.hits = [hit(f"m{number}", text=f"note number {number}")]
        outcomes.append(await surfacer.surface(read(f"src/file{number}.py")))
    await surfacer.deliveries.take_back(outcomes[0], read("src/file0.py"))
    stage.recall.hits = [hit("m9", text="another note")]
    assert await reason(surfacer, read("src/file1.py")) is SkipReason.COOLDOWN
    assert isinstance(await surfacer.surface(read("src/file9.py")), Surfacing)
    assert await reason(surfacer, read("src/last.py")) is SkipReason.RATE


async def test_three_failures_open_the_breaker_and_a_probe_closes_it():
    stage = Stage(error=RecallUnavailable("down", source="fake"))
    surfacer = stage.surfacer()
    for number in range(3):
        assert await reason(surfacer, read(f"src/f{number}.py")) is SkipReason.FAULT
    assert await reason(surfacer, read("src/f4.py")) is SkipReason.BREAKER_OPEN
    stage.clock.advance(60)
    stage.recall.error, stage.recall.hits = None, [hit()]
    assert isinstance(await surfacer.surface(read("src/f5.py")), Surfacing)


class FullTtlStore(TtlStore):
    """A TTL store that can be read but not written, because the disk is full."""

    async def put_all(self, *entries):
        raise StoreUnwritable("no room", hint="free some disk space")


async def test_an_unwritable_ledger_gives_a_reason_and_never_fails_the_call():
    surfacer = Surfacer(FakeRecall([hit()]), FullTtlStore(), EVERY_MOMENT)
    assert await reason(surfacer, read()) is SkipReason.FAULT
    await surfacer.aclose()


async def test_a_slow_recall_ends_at_its_deadline():
    class Stuck(FakeRecall):
        async def search(self, query, deadline):
            await asyncio.Event().wait()

    options = PipelineOptions(surface=SurfaceOptions(moments="all", timeout_seconds=0.05))
    surfacer = Surfacer(Stuck(), TtlStore(), options)
    assert await reason(surfacer, read()) is SkipReason.DEADLINE


async def test_required_intent_is_the_literal_rule_of_adr_006():
    stage = Stage(hit())
    stage.intent = IntentOptions(required=True)
    statement = Cue(door="prompt", text="JC moved the cache to Lima last week")
    assert await reason(stage.surfacer(), statement) is SkipReason.LOW_INTENT
    stage.intent = IntentOptions()
    assert isinstance(await stage.surfacer().surface(statement), Surfacing)


async def test_decisions_reach_the_journal():
    stage = Stage(hit(), persist_query_text=False)
    surfacer = stage.surfacer()
    await surfacer.surface(read())
    await surfacer.aclose()
    (stored,) = await Events(stage.ttl_store, stage.clock).latest(9)
    assert (stored.outcome, stored.tool, stored.times, stored.memories) == (
        "surfaced",
        "Read",
        1,
        1,
    )
    assert 20 < stored.tokens < 200
    assert "cache" not in stored.data.replace("src/cache", "")
    assert "sha256:" in stored.queries
    assert "cache" not in stored.queries


async def test_the_users_request_is_known_at_every_setting_of_moments() -> None:
    """It guides shortening, whatever may surface."""
    for options in (PipelineOptions(), EVERY_MOMENT):
        surfacer = Surfacer(FakeRecall(), TtlStore(), options)
        request = "Why was the customer charged twice?"
        await surfacer.surface(Cue(door=Door.PROMPT, text=request, session="s"))
        assert surfacer.last_request("s") == request


def commit(identity, text, at=1.0, score=0.95):
    memory = Memory(id=identity, text=text, source=f"git:{identity}", created_at=at)
    return Hit(memory=memory, score=score)


async def said_at(text, *hits):
    stage = Stage(*hits, moments=SurfaceOptions().moments)
    outcome = await stage.surfacer().surface(Cue(door="prompt", text=text, session="s"))
    return [] if isinstance(outcome, Skip) else [memory.id for memory in outcome.memories]


async def test_a_commit_that_is_held_back_displaces_no_note_of_the_same_words():
    text = "Draw the tide gauge beside the ferry"
    note = hit("note", 0.6, text)
    assert await said_at("how is the tide gauge drawn?", commit("c", text), note) == ["note"]


async def test_of_commits_that_state_a_fact_the_newest_is_said():
    old = commit("old", "Move the tide gauge to port 6390", at=1.0, score=0.99)
    new = commit("new", "Move the tide gauge to port 7443", at=2.0)
    assert await said_at("which port does the tide gauge use?", old, new) == ["new"]
    assert await said_at("how does the tide gauge find its port?", old, new) == []
