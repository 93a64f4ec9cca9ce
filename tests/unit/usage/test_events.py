"""The rows of decisions and shortened results."""

import hashlib

import pytest

from upwell.ground.ledger import TtlStore
from upwell.testing import ManualClock
from upwell.usage import events as rows
from upwell.usage.events import CUT, CUT_SECONDS, RETENTION_SECONDS, Counts, EventRow, Events

DAY = 86_400.0
PLACE = {"host": "claude", "project": "/srv/shop", "session": "s", "tool": "Bash"}


class Log:
    def __init__(self) -> None:
        self.clock = ManualClock(1_770_000_000.0)
        self.store = TtlStore(clock=self.clock)
        self.events = Events(self.store, self.clock)

    async def decide(self, name: str, outcome: str = "routine", **more: object) -> None:
        event = EventRow(
            id=name, kind="decision", at=self.clock.now(), door="tool", outcome=outcome, times=1,
            data="{}", **{**PLACE, **more},
        )  # fmt: skip
        await self.events.put([event])
        self.clock.advance(1)

    async def cut(self, name: str, key: str = "k") -> None:
        event = EventRow(
            id=name, kind=CUT, at=self.clock.now(), times=1, before=900, after=100,
            data=f'{{"keys":["{key}"]}}', **PLACE,
        )  # fmt: skip
        await self.events.put([event])
        self.clock.advance(1)

    async def ids(self, **filters: object) -> list[str]:
        return [event.id for event in await self.events.latest(9, **filters)]

    async def figures(self) -> list[tuple[str, str, int]]:
        counts = await Counts(self.store, self.clock).since(90)
        return sorted((str(each.event), each.kind, each.number) for each in counts)


async def test_the_latest_events_are_found_by_what_they_are_about() -> None:
    log = Log()
    await log.decide("a", "surfaced", file="src/Crane.py")
    await log.decide("b", host="codex")
    middle = log.clock.now()
    await log.cut("c")
    await log.decide("d", tool="Read")
    assert await log.ids() == ["d", "c", "b", "a"]
    assert await log.ids(kind="decision") == ["d", "b", "a"]
    assert await log.ids(before=middle) == ["b", "a"]
    assert await log.ids(after=middle - 0.5) == ["d", "c"]
    assert await log.ids(matching={"host": "codex"}) == ["b"]
    assert await log.ids(matching={"host": "claude", "tool": "Bash"}) == ["c", "a"]
    assert await log.ids(file="crane") == ["a"]
    assert await log.ids(spoke=True) == ["c", "a"]


async def test_an_event_that_changes_is_one_event() -> None:
    log = Log()
    await log.decide("a", "surfaced", memories=2, tokens=40)
    await log.decide("b")
    await log.decide("a", "not_delivered", late=1)
    assert await log.ids() == ["a", "b"]
    assert await log.figures() == [
        ("decision", "not_delivered", 1),
        ("decision", "routine", 1),
        ("late", "missed", 1),
        ("session", log_digest("s"), 1),
    ]


async def test_a_shortened_result_is_found_by_any_of_its_keys() -> None:
    log = Log()
    await log.cut("first", "k1")
    await log.cut("later", "k1")
    await log.cut("other", "k2")
    found = await log.events.cut_of("k1")
    assert found is not None
    assert found.id == "later"
    assert await log.events.cut_of("k") is None


@pytest.mark.parametrize("listed", [0, 1, 3])
async def test_of_the_oldest_events_only_the_figures_stay(
    monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    monkeypatch.setattr(rows, "MAX_EVENTS", listed)
    log = Log()
    for name in ("a", "b"):
        await log.decide(name, "surfaced", memories=2, tokens=40)
    await log.cut("c")
    before = await log.figures()
    for _ in range(2):
        await log.events.expire()
        assert sorted(await log.ids()) == ["a", "b", "c"][3 - listed :]
        assert await log.figures() == before


async def test_events_expire() -> None:
    log = Log()
    await log.cut("c")
    await log.decide("a")
    figures = await log.figures()
    log.clock.advance(CUT_SECONDS)
    await log.events.expire()
    assert (await log.ids(), await log.figures()) == (["a"], figures)
    log.clock.advance(RETENTION_SECONDS - CUT_SECONDS)
    assert await log.ids() == [], "even before they are removed"
    await log.events.expire()
    assert await log.figures() == []


def log_digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()[:12]
