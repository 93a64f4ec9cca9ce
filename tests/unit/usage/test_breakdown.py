"""Totals by day, host, project and tool."""

from upwell.ground.ledger import TtlStore
from upwell.testing import ManualClock
from upwell.usage.events import CountedEvent, Counts, EventRow, Events
from upwell.usage.report import Dimension, UsageMetric, rows_by, whole

DAY = 86_400.0
SHOP = {"host": "claude", "project": "/srv/shop", "tool": "Bash"}


async def test_totals_add_up_over_days_and_places() -> None:
    clock = ManualClock(1_770_000_000.0)
    store = TtlStore(clock=clock)
    events, counts = Events(store, clock), Counts(store, clock)
    decided = {"kind": "decision", "door": "tool", "outcome": "routine", "times": 1}
    await events.put([EventRow(id=name, at=clock.now(), **decided, **SHOP) for name in ("a", "b")])
    cut = {"kind": "compressed", "times": 1, "before": 1_000, "after": 300}
    await events.put([EventRow(id="c", at=clock.now(), **cut, **SHOP)])
    counts.add(CountedEvent.READ_AGAIN, by=100, **SHOP)
    await counts.flush()
    clock.advance(DAY)
    said = {"outcome": "surfaced", "times": 1, "memories": 2, "tokens": 80}
    await events.put([EventRow(id="d", kind="decision", at=clock.now(), door="prompt", **said)])
    found = await Counts(store, clock).since(7)
    total = whole(found)
    assert (total[UsageMetric.EVENTS], total.saved, total.net) == (3, 700, 520)
    hosts = {row.name: row.net for row in rows_by(found, Dimension.HOST)}
    assert hosts == {"claude": 600, "": -80}
    assert [row.name for row in rows_by(found, Dimension.DAY)] == ["2026-02-02", "2026-02-03"]
    assert [row.name for row in rows_by(found, Dimension.PROJECT)] == ["/srv/shop", ""]
    assert [row.name for row in rows_by(await counts.since(1), Dimension.TOOL)] == ["prompt"]


async def test_names_with_separators_and_of_any_length_are_kept_apart() -> None:
    counts = Counts(TtlStore())
    place = {"host": "a\tb", "project": "c\nd" * 500, "tool": "\ud800"}
    counts.add(CountedEvent.READ_AGAIN, by=1, **place)
    [row] = await counts.since(1)
    assert (row.host, len(row.project), row.tool) == ("a b", 300, "?")
