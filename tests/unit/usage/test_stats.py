from upwell.ground.ttl_store import MemoryTtlStore
from upwell.ground.types.surfacing import Rating, SkipReason
from upwell.testing import ManualClock
from upwell.usage.counts import Counts, Event
from upwell.usage.stats import stats_of

DAY = 86_400.0


async def test_counts_are_added_up():
    clock = ManualClock()
    ttl_store = MemoryTtlStore(clock=clock)
    one, two = Counts(ttl_store, clock), Counts(ttl_store, clock)
    one.add(Event.DECISION, "surfaced", door="tool", tool="fs__read")
    one.add(Event.SAID, "memories", door="tool", tool="fs__read", by=3)
    two.add(Event.DECISION, "repeated", door="tool", tool="fs__read", by=2)
    two.add(Event.DECISION, "not_applicable", door="prompt")
    two.add(Event.RATING, "helpful", door="tool", tool="fs__read")
    two.add(Event.COMPRESSED, "results", tool="fs__read")
    two.add(Event.COMPRESSED, "tokens_before", tool="fs__read", by=9000)
    two.add(Event.COMPRESSED, "tokens_saved", tool="fs__read", by=5000)
    for counts in (one, two, one):
        await counts.flush()
    found = stats_of(await one.since(1))
    assert (found.decisions, found.surfaced, found.memories) == (4, 1, 3)
    assert found.skips["repeated"] == 2
    assert set(found.skips) == set(SkipReason)
    assert found.ratings == {str(rating): int(rating == "helpful") for rating in Rating}
    assert [(b.door, b.tool, b.decisions) for b in found.beside] == [
        ("tool", "fs__read", 3),
        ("prompt", "", 1),
    ]
    assert (found.tokens_saved, found.tokens_before) == (5000, 9000)


async def test_only_the_requested_days_are_counted():
    clock = ManualClock()
    counts = Counts(MemoryTtlStore(clock=clock), clock)
    for _ in range(5):
        counts.add(Event.DECISION, "rate", door="tool")
        await counts.flush()
        clock.advance(DAY)
    assert stats_of(await counts.since(1)).decisions == 0
    assert stats_of(await counts.since(3)).decisions == 2
    assert stats_of(await counts.since(90)).decisions == 5


async def test_a_name_cannot_forge_another_counter():
    counts = Counts(MemoryTtlStore())
    counts.add(Event.DECISION, "surfaced", door="tool", tool="a\ttool\nb\ud800" + "x" * 999)
    await counts.flush()
    (count,) = await counts.since(1)
    assert count.tool.startswith("a tool b?xx")
    assert len(count.tool) == 200
