"""The audit log, in a file and in a database."""

import stat
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.postgres import cluster

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory
from upwell.memory.postgres.store import PostgresStore
from upwell.testing import ManualClock
from upwell.usage import audit as audit_module
from upwell.usage.audit import (
    MAX_OF_STRANGERS,
    RETENTION_SECONDS,
    STRANGER_SECONDS,
    Audit,
    AuditEntry,
    FileLog,
    Log,
    PostgresLog,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["file", "postgres"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Log]:
    if request.param == "file":
        yield FileLog(tmp_path / "audit.jsonl")
        return
    postgres = Postgres(cluster().emptied())
    yield PostgresLog(postgres, "acme")
    await postgres.aclose()


async def test_events_come_back_newest_first(log: Log, clock: ManualClock) -> None:
    audit = Audit(log, clock)
    for number in range(3):
        clock.advance(1)
        audit.record("ada", "add_memory", f"team/{number}\n\0\ud800", "done")
        await audit.aclose()
    events = await audit.latest(2)
    assert [event.subject[:6] for event in events] == ["team/2", "team/1"]
    assert all(event.subject.isprintable() for event in events)
    assert (events[0].actor, events[0].action, events[0].outcome) == ("ada", "add_memory", "done")


async def test_the_same_denial_is_recorded_once_a_minute(log: Log, clock: ManualClock) -> None:
    audit = Audit(log, clock)
    for _ in range(100):
        audit.denied("ada", "too many")
        audit.denied("bob", "too many")
    clock.advance(61)
    audit.denied("ada", "too many")
    await audit.aclose()
    assert sorted(event.actor for event in await audit.latest()) == ["ada", "ada", "bob"]


async def test_a_flood_of_strangers_adds_few_entries(log: Log, clock: ManualClock) -> None:
    audit = Audit(log, clock)
    for number in range(1_000):
        for _ in range(3):
            audit.stranger(f"192.0.2.{number % 250}:{number}", "unknown token")
    audit.denied("ada", "too many")
    await audit.aclose()
    events = await audit.latest(1_000)
    assert len(events) == MAX_OF_STRANGERS + 2, "a count of the others, and another's denial"
    assert "denied: 2,940 more requests without a valid token" in {e.outcome for e in events}
    assert "ada" in {event.actor for event in events}
    assert "unknown at 192.0.2.0:0" in {event.actor for event in events}


async def test_a_stranger_is_recorded_once_an_hour(log: Log, clock: ManualClock) -> None:
    audit = Audit(log, clock)
    for _ in range(3):
        audit.stranger("192.0.2.1", "no token")
        audit.stranger("192.0.2.1", "unknown token")
        clock.advance(STRANGER_SECONDS / 2)
    await audit.expire()
    outcomes = sorted(event.outcome for event in await _finished(audit))
    assert outcomes == [
        "denied: 2 more requests without a valid token",
        *["denied: no token"] * 2,
        *["denied: unknown token"] * 2,
    ]


async def _finished(audit: Audit) -> Sequence[AuditEntry]:
    await audit.aclose()
    return await audit.latest()


async def test_half_a_line_hides_no_other(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "audit.jsonl"
    audit = Audit(FileLog(path), clock)
    audit.record("ada", "add_memory", "1", "done")
    await audit.aclose()
    path.write_text('{"at": 1, "act\n' + path.read_text() + '{"at": 2}\n')
    assert [event.subject for event in await audit.latest()] == ["1"]


async def test_a_file_stays_small_and_private(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "MAX_FILE_BYTES", 1_000)
    audit = Audit(FileLog(tmp_path / "audit.jsonl"), clock)
    for number in range(50):
        audit.record("ada", "add_memory", str(number), "done")
        await audit.aclose()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 2_500
    assert (await audit.latest(1))[0].subject == "49"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


async def test_the_database_records_every_writer(clock: ManualClock) -> None:
    postgres = Postgres(cluster().emptied())
    store = PostgresStore(postgres, tenant="acme", clock=clock)
    try:
        memories = [Memory(text=f"kettle {n}", id=f"k{n:02}", tenant="acme") for n in range(30)]
        await store.add(memories)
        await store.delete("k01")
        events = await PostgresLog(postgres, "acme").latest(10)
        assert [(event.action, event.outcome) for event in events] == [
            ("remove", "done: 1"),
            ("store", "done: 30"),
        ]
        assert events[0].subject == "k01"
        assert events[1].subject.split() == [f"k{n:02}" for n in range(20)]
        assert "kettle" not in repr(events)
        assert all("upwell_app@127.0.0.1" in event.actor for event in events)
        assert await PostgresLog(postgres, "other").latest(10) == []
        log = PostgresLog(postgres, "acme")
        await log.expire(events[0].at + RETENTION_SECONDS + 1)
        assert await log.latest(10) == []
    finally:
        await postgres.aclose()


async def test_a_log_that_fails_fails_nobody(tmp_path: Path, clock: ManualClock) -> None:
    nowhere = Audit(FileLog(tmp_path / "missing" / "audit.jsonl"), clock)
    nowhere.record("ada", "add_memory", "", "done")
    await nowhere.aclose()
    lost = Postgres("postgresql://nobody@127.0.0.1:1/none")
    audit = Audit(PostgresLog(lost, "acme"), clock)
    audit.record("ada", "add_memory", "", "done")
    await audit.aclose()
    with pytest.raises(StoreError):
        await audit.latest()
    await lost.aclose()
