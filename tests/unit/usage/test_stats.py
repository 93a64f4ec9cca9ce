from upwell.app.reporting import in_words
from upwell.ground.ledger import TtlStore
from upwell.ground.types.cue import Rating, SkipReason
from upwell.testing import ManualClock
from upwell.usage.events import CUT, CountedEvent, Counts, EventRow, Events
from upwell.usage.report import COSTS, described, report, stats_of

DAY = 86_400.0
NO_GAIN = {"saved": 0, "net": 0, **dict.fromkeys(COSTS, 0)}


async def test_counts_are_added_up():
    clock = ManualClock()
    ttl_store = TtlStore(clock=clock)
    first, second = Counts(ttl_store, clock), Counts(ttl_store, clock)
    first.add(CountedEvent.DECISION, "surfaced", door="tool", tool="fs__read")
    first.add(CountedEvent.SAID, "memories", door="tool", tool="fs__read", by=3)
    second.add(CountedEvent.DECISION, "repeated", door="tool", tool="fs__read", by=2)
    second.add(CountedEvent.DECISION, "not_applicable", door="prompt")
    second.add(CountedEvent.RATING, "helpful", door="tool", tool="fs__read")
    cut = EventRow(
        id="c", kind=CUT, at=clock.now(), tool="fs__read", times=1, before=9000, after=4000
    )
    await Events(ttl_store, clock).put([cut])
    for counts in (first, second, first):
        await counts.flush()
    result = stats_of(await first.since(1))
    assert (result.decisions, result.surfaced, result.memories) == (4, 1, 3)
    assert result.skips["repeated"] == 2
    assert set(result.skips) == set(SkipReason)
    assert result.ratings == {str(rating): int(rating == "helpful") for rating in Rating}
    assert [(b.door, b.tool, b.decisions) for b in result.beside] == [
        ("tool", "fs__read", 3),
        ("prompt", "", 1),
    ]
    assert (result.tokens_saved, result.tokens_before) == (5000, 9000)


async def test_rates_show_how_much_surfaced_and_was_used():
    clock = ManualClock()
    counts = Counts(TtlStore(clock=clock), clock)
    assert stats_of(await counts.since(1)).used_share is None
    counts.add(CountedEvent.DECISION, "surfaced", door="prompt", by=2)
    counts.add(CountedEvent.DECISION, "routine", door="tool", by=198)
    counts.add(CountedEvent.SAID, "memories", door="prompt", by=3)
    counts.add(CountedEvent.SAID, "tokens", door="prompt", by=300)
    counts.add(CountedEvent.USE, "used", door="prompt")
    counts.add(CountedEvent.USE, "ignored", door="prompt", by=3)
    for session in ("one", "two", "one"):
        counts.add(CountedEvent.SESSION, session)
    await counts.flush()
    result = stats_of(await counts.since(1))
    assert result.said_per_100 == 1.5
    assert (result.sessions, result.tokens_per_session) == (2, 150)
    assert result.used_share == 0.25
    shown = described(result, 1)
    assert [shown[name] for name in ("said_per_100", "tokens_per_session", "used_share")] == [
        1.5,
        150.0,
        0.25,
    ]


async def test_only_the_requested_days_are_counted():
    clock = ManualClock()
    counts = Counts(TtlStore(clock=clock), clock)
    for _ in range(5):
        counts.add(CountedEvent.DECISION, "rate", door="tool")
        await counts.flush()
        clock.advance(DAY)
    assert stats_of(await counts.since(1)).decisions == 0
    assert stats_of(await counts.since(3)).decisions == 2
    assert stats_of(await counts.since(90)).decisions == 5


async def test_a_report_without_a_surfacing_says_so_in_words():
    clock = ManualClock()
    counts = Counts(TtlStore(clock=clock), clock)
    counts.add(CountedEvent.DECISION, "surfaced", door="ask")
    await counts.flush()
    nothing = report(stats_of(await counts.since(1)), (), 7, in_words, NO_GAIN)
    assert nothing[0].startswith("No event from an agent")
    counts.add(CountedEvent.DECISION, "routine", door="tool", by=3)
    await counts.flush()
    first, *rest = report(stats_of(await counts.since(1)), (), 7, in_words, NO_GAIN)
    assert first == "upwell looked 3 times in 7 days and never spoke."
    words = in_words("routine")
    assert " " in words
    assert [line.split("  ")[-1] for line in rest if words in line] == [words, f"mostly: {words}"]
