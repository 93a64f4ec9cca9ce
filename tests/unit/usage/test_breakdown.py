"""Totals by day, host, project and tool."""

from upwell.ground.ttl_store import TtlStore
from upwell.testing import ManualClock
from upwell.usage.breakdown import Breakdown, Dimension, UsageMetric, UsagePlace, rows_by, whole

DAY = 86_400.0
SHOP = UsagePlace("claude", "/srv/shop", "Bash")
BARE = UsagePlace(tool="prompt")


async def test_totals_add_up_over_days_and_places() -> None:
    clock = ManualClock(1_770_000_000.0)
    store = TtlStore(clock=clock)
    breakdown = Breakdown(store, clock)
    breakdown.add(SHOP, events=1, results=1, before=1_000, after=300)
    breakdown.add(SHOP, events=1, read_again=100)
    await breakdown.flush()
    clock.advance(DAY)
    breakdown.add(BARE, events=1, spoke=1, memories=2, said_tokens=80)
    await breakdown.flush()
    totals = await Breakdown(store, clock).since(7)
    total = whole(totals)
    assert (total[UsageMetric.EVENTS], total.saved, total.net) == (3, 700, 520)
    hosts = {row.name: row.net for row in rows_by(totals, Dimension.HOST)}
    assert hosts == {"claude": 600, "": -80}
    assert [row.name for row in rows_by(totals, Dimension.DAY)] == ["2026-02-02", "2026-02-03"]
    assert [row.name for row in rows_by(totals, Dimension.PROJECT)] == ["/srv/shop", ""]
    assert [total.place.tool for total in await breakdown.since(1)] == ["prompt"] * 4


async def test_undone_events_leave_no_trace() -> None:
    store = TtlStore()
    breakdown = Breakdown(store)
    breakdown.add(SHOP, spoke=1, memories=1)
    breakdown.add(SHOP, spoke=-1, memories=-1)
    await breakdown.flush()
    assert await breakdown.since(1) == []


async def test_names_with_separators_and_of_any_length_are_kept_apart() -> None:
    store = TtlStore()
    breakdown = Breakdown(store)
    breakdown.add(UsagePlace("a\tb", "c\nd" * 500, "\ud800"), events=1)
    await breakdown.flush()
    [total] = await breakdown.since(1)
    assert (total.place.host, len(total.place.project), total.place.tool) == ("a b", 300, "?")
