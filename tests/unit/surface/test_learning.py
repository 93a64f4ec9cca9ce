"""Thresholds that learn from ratings, and hits that come too late."""

import asyncio
import json

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.ledger import TtlStore
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.cue import Cue, Feedback, Rating, Skip, SkipReason, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.learn.feedback import OWNER, Ratings
from upwell.learn.implicit import Uses
from upwell.learn.learned import Learned, LearnedLimits
from upwell.learn.options import LearnOptions
from upwell.surface.learning import Learning
from upwell.surface.options import PipelineOptions, SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.testing import FakeRecall, ManualClock
from upwell.usage.events import CountedEvent, EventRow, Events

EVERY_MOMENT = PipelineOptions(surface=SurfaceOptions(moments="all"))

DAYS_8 = 8 * 86_400.0


class Stage:
    def __init__(self, path):
        self.clock = ManualClock()
        self.ttl_store = TtlStore(clock=self.clock)
        self.recall = FakeRecall([hit()])
        self.database = open_database(path / "memory.db", [OWNER], synchronous="FULL")
        self.learning = self.new_lessons()
        self.surfacer = self.new_surfacer()

    def new_lessons(self):
        learned = Learned(
            Ratings(self.database),
            Uses(self.ttl_store),
            LearnOptions(),
            LearnedLimits(),
            self.clock,
        )

        async def rare(words):
            return set()

        return Learning(learned, self.ttl_store, rare=rare, clock=self.clock)

    def new_surfacer(self, **surface):
        options = PipelineOptions(surface=SurfaceOptions(**{"moments": "all", **surface}))
        return Surfacer(
            self.recall, self.ttl_store, options, learning=self.learning, clock=self.clock
        )

    async def counts(self, event):
        await self.learning.counts.flush()
        collected = {}
        for entry in await self.learning.counts.since(90):
            if entry.event is event:
                collected[entry.kind] = collected.get(entry.kind, 0) + entry.number
        return {kind: number for kind, number in collected.items() if number}


@pytest.fixture
async def stage(tmp_path):
    result = Stage(tmp_path)
    yield result
    await result.surfacer.aclose()
    await result.database.aclose()


def hit(identity="m1", score=0.55, text="the cache reloads on SIGHUP"):
    memory = Memory(id=identity, text=text, content_hash=f"h-{text}")
    return Hit(memory=memory, score=score, signals={"bm25": 7.0})


def read(path="src/cache.py", session="s", **more):
    return Cue(door="tool", tool="fs__read", args={"file_path": path}, session=session, **more)


async def say_and_rate(stage, rating, times=1, memory=None):
    for number in range(times):
        stage.clock.advance(DAYS_8)
        outcome = await stage.surfacer.surface(read(session=f"session {number}"))
        assert isinstance(outcome, Surfacing), outcome
        await stage.surfacer.ratings.rate(
            Feedback(surfacing_id=outcome.id, rating=rating, memory_id=memory)
        )
    stage.clock.advance(DAYS_8)


async def test_ratings_move_the_threshold_of_the_next_call(stage):
    stage.recall.hits = [hit("m1"), hit("m2", text="another thing entirely")]
    await say_and_rate(stage, Rating.HELPFUL, 5)
    for number in range(12):
        stage.recall.hits = [hit(f"n{number}", text=f"note number {number}")]
        stage.clock.advance(60)
        outcome = await stage.surfacer.surface(read())
        if isinstance(outcome, Skip):
            break
        feedback = Feedback(surfacing_id=outcome.id, rating=Rating.NOT_RELEVANT)
        await stage.surfacer.ratings.rate(feedback)
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.BELOW_MIN_SCORE
    other = Cue(door="tool", tool="db__query", args={"query": "cache reload"}, session="s")
    assert isinstance(await stage.surfacer.surface(other), Surfacing), "only that tool's"


async def test_three_negatives_demote_a_memory_except_for_explicit_requests(stage):
    await say_and_rate(stage, Rating.NOT_RELEVANT, 3)
    outcome = await stage.surfacer.surface(read())
    assert isinstance(outcome, Skip)
    assert outcome.reason is SkipReason.DEMOTED
    assert outcome.held_back[0].memory.id == "m1"
    ask = Cue(door="ask", text="when does the cache reload?")
    assert isinstance(await stage.surfacer.surface(ask), Surfacing)
    assert (await stage.counts(CountedEvent.DECISION))["demoted"] == 1


async def test_a_demoted_memory_makes_room_for_another(stage):
    await say_and_rate(stage, Rating.ALREADY_KNOWN, 3)
    stage.recall.hits = [hit(), hit("m2", text="the cache is sharded")]
    outcome = await stage.surfacer.surface(read())
    assert [memory.id for memory in outcome.memories] == ["m2"]


async def test_an_already_known_memory_is_silent_for_seven_days(stage):
    outcome = await stage.surfacer.surface(read())
    stage.clock.advance(6 * 86_400)
    known = Feedback(surfacing_id=outcome.id, rating=Rating.ALREADY_KNOWN)
    await stage.surfacer.ratings.rate(known)
    stage.clock.advance(6 * 86_400)
    later = await stage.surfacer.surface(read(session="another"))
    assert isinstance(later, Skip)
    assert later.reason is SkipReason.REPEATED


@pytest.mark.parametrize(
    ("surfacing", "memory", "complaint"),
    [("s_none", None, "no surfacing"), ("", None, "no surfacing"), (None, "m9", "m9.*not chosen")],
)
async def test_feedback_on_an_unknown_surfacing_is_one_clear_line(
    stage, surfacing, memory, complaint
):
    outcome = await stage.surfacer.surface(read())
    feedback = Feedback(
        surfacing_id=outcome.id if surfacing is None else surfacing,
        rating=Rating.HELPFUL,
        memory_id=memory,
    )
    with pytest.raises(UsageError, match=complaint):
        await stage.surfacer.ratings.rate(feedback)


async def test_a_rating_waits_for_a_decision_that_is_being_written(stage):
    outcome = await stage.surfacer.surface(read())
    writing = asyncio.create_task(stage.surfacer.journal.flush())
    await asyncio.sleep(0)
    reply = await stage.surfacer.ratings.rate(
        Feedback(surfacing_id=outcome.id, rating=Rating.HELPFUL)
    )
    assert [entry.memory for entry in reply] == ["m1"]
    await writing


async def test_a_skip_cannot_be_rated(stage):
    stage.recall.hits = []
    await stage.surfacer.surface(read())
    (decision,) = await stage.surfacer.journal.latest(9)
    with pytest.raises(UsageError, match="no surfacing"):
        await stage.surfacer.ratings.rate(
            Feedback(surfacing_id=decision["id"], rating=Rating.HELPFUL)
        )


async def test_a_rating_records_its_surfacing(stage):
    outcome = await stage.surfacer.surface(read(trace_id="t" * 32))
    (first,) = await stage.surfacer.ratings.rate(
        Feedback(surfacing_id=outcome.id, rating=Rating.PARTIALLY_HELPFUL)
    )
    assert (first.tool, first.door, first.score, first.signals) == (
        "fs__read",
        "tool",
        0.55,
        {"bm25": 7.0},
    )
    (decision,) = await stage.surfacer.journal.latest(9)
    assert decision["trace_id"] == "t" * 32


async def test_late_hits_are_given_at_the_next_call_about_the_same_file(stage):
    late = await stage.surfacer.surface(read())
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    stage.recall.hits = []
    elsewhere = Cue(door="tool", tool="fs__write", args={"path": "b.py"}, session="s")
    assert isinstance(await stage.surfacer.surface(elsewhere), Skip), "a gate was shut: it waits"
    asked = len(stage.recall.asked)
    outcome = await stage.surfacer.surface(read())
    assert [memory.id for memory in outcome.memories] == ["m1"]
    assert len(stage.recall.asked) == asked, "no second search, which would be late again"
    stage.clock.advance(10)
    assert isinstance(await stage.surfacer.surface(read()), Skip), "once"
    assert await stage.counts(CountedEvent.LATE) == {"missed": 1, "offered": 1}
    assert (await stage.counts(CountedEvent.DECISION))["surfaced"] == 1


@pytest.mark.parametrize(
    ("next_cue", "wait"),
    [
        (read("docs/tulips.md"), 0),
        (read(), 61),
        (Cue(door="tool", tool="fs__read", args={"file_path": "src/cache.py"}, session="x"), 0),
    ],
)
async def test_late_hits_are_not_given_elsewhere_or_much_later(stage, next_cue, wait):
    late = await stage.surfacer.surface(read())
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    stage.recall.hits = []
    stage.clock.advance(wait)
    assert isinstance(await stage.surfacer.surface(next_cue), Skip)


async def test_late_hits_are_searched_again_after_a_change_of_the_memory(stage):
    late = await stage.surfacer.surface(read())
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    stage.recall.hits = []
    stage.recall.version += 1
    assert isinstance(await stage.surfacer.surface(read()), Skip)
    assert len(stage.recall.asked) == 2


async def test_a_memory_deleted_before_its_late_hit_is_not_offered(stage):
    """The memory was deleted during the slow search."""
    stage.recall.hits = [hit("m1"), hit("m2", text="the cache is sharded by tenant")]
    late = await stage.surfacer.surface(read())
    stage.recall.hits = [hit("m1")]
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    outcome = await stage.surfacer.surface(read())
    assert [memory.id for memory in outcome.memories] == ["m1"]


async def test_late_hits_are_offered_whatever_happens_to_ratings(stage):
    """Only changes of memories count, not writes to the tables of feedback."""
    late = await stage.surfacer.surface(read())
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    await stage.database.write(lambda db: db.execute("CREATE TABLE unrelated (id TEXT)"))
    searches = len(stage.recall.asked)
    assert isinstance(await stage.surfacer.surface(read()), Surfacing)
    assert len(stage.recall.asked) == searches


@pytest.mark.parametrize("path", ["src/ca\udcffche.py", "src/caché.py"])
async def test_a_late_hit_survives_any_name_of_a_file(stage, path):
    late = await stage.surfacer.surface(read(path))
    await stage.surfacer.deliveries.take_back(late, read(path), late=True)
    searches = len(stage.recall.asked)
    assert isinstance(await stage.surfacer.surface(read(path)), Surfacing)
    assert len(stage.recall.asked) == searches


async def test_a_late_hit_that_was_delivered_meanwhile_is_not_repeated(stage):
    late = await stage.surfacer.surface(read())
    await stage.surfacer.deliveries.take_back(late, read(), late=True)
    asked = Cue(door="ask", text="when does the cache reload?", session="s")
    assert isinstance(await stage.surfacer.surface(asked), Surfacing)
    stage.recall.hits = []
    assert isinstance(await stage.surfacer.surface(read()), Skip)


async def test_query_texts_expire_and_decisions_stay(stage):
    await stage.surfacer.surface(read())
    await stage.surfacer.journal.flush()
    stage.clock.advance(31 * 86_400)
    (decision,) = await stage.surfacer.journal.latest(9)
    assert decision["queries"] == []
    assert decision["memories"] == [["m1", 0.55]]


async def test_earlier_query_texts_are_cleared_when_none_may_be_stored(stage):
    await stage.surfacer.surface(read())
    assert (await stage.surfacer.journal.latest(9))[0]["queries"] == ["cache"]
    shorter = stage.new_surfacer(query_retention_days=1)
    assert await shorter.journal.clear_queries() == 0
    stage.clock.advance(2 * 86_400)
    assert await shorter.journal.clear_queries() == 1
    stage.clock.advance(DAYS_8)
    await stage.surfacer.surface(read())
    await stage.surfacer.journal.flush()
    private = stage.new_surfacer(persist_query_text=False)
    assert await private.journal.clear_queries() == 1
    assert await private.journal.clear_queries() == 0


async def test_secrets_do_not_reach_the_journal(stage):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"[:36]
    surfacer = Surfacer(stage.recall, stage.ttl_store, EVERY_MOMENT)
    cue = Cue(door="prompt", text=f"why does the cache say {secret}?", session=f"s {secret}")
    await surfacer.surface(cue)
    await surfacer.aclose()
    rows = await stage.ttl_store.database.read(
        lambda db: db.execute("SELECT * FROM event").fetchall()
    )
    assert rows
    assert secret not in str(rows)


async def test_a_decision_with_fewer_fields_can_be_explained_and_rated(stage):
    """Earlier versions wrote such a decision."""
    event = EventRow(
        id="s_cold", kind="decision", at=stage.clock.now(), session="s", door="tool", tool="Read",
        outcome="surfaced", data=json.dumps({"memories": [["m1", 0.8]]}),
    )  # fmt: skip
    await Events(stage.ttl_store, stage.clock).put([event])
    (decision,) = await stage.surfacer.journal.latest(9)
    assert (decision["id"], decision["late"], decision["queries"]) == ("s_cold", False, [])
    (first,) = await stage.surfacer.ratings.rate(
        Feedback(surfacing_id="s_cold", rating=Rating.HELPFUL)
    )
    assert (first.tool, first.memory, first.score) == ("Read", "m1", 0.8)
