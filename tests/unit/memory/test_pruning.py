"""The database forgets old deletions, and copies that have missed one are made anew."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.machines import SHOP, Machine, as_superuser

from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Scope
from upwell.memory.postgres import pruning as postgres_pruning
from upwell.memory.postgres import shared as postgres_shared
from upwell.memory.postgres.pruning import Pruning
from upwell.memory.postgres.shared import PostgresSharedMemories
from upwell.memory.team.base import ChangePage, Cursor

DAYS = 30


class Log:
    """The log of changes in the database."""

    def __init__(self, url: str, postgres: Postgres) -> None:
        self.url = url
        self.postgres = postgres

    def age(self, days: float = DAYS + 1) -> None:
        """Let time pass for what is in the log."""
        with as_superuser(self.url) as connection:
            connection.execute("UPDATE upwell.change SET at = at - %s", [days * 86_400])

    async def prune(self) -> int:
        return await Pruning(self.postgres, DEFAULT_TENANT, DAYS).run()

    async def pass_and_prune(self) -> int:
        self.age()
        return await self.prune()

    def rows(self) -> dict[str, bool]:
        """Memory → whether it is gone."""
        with as_superuser(self.url) as connection:
            return dict(connection.execute("SELECT id, gone FROM upwell.change").fetchall())


@pytest.fixture
async def log(url: str) -> AsyncIterator[Log]:
    postgres = Postgres(url)
    yield Log(url, postgres)
    await postgres.aclose()


def cursor_of(machine: Machine, folder: Path, project: str = "") -> Cursor:
    with sqlite3.connect(folder / "memory.db") as db:
        row = db.execute(
            "SELECT project, version, after FROM team_project WHERE project = ?", [project]
        ).fetchone()
    return Cursor(*row)


def tides(*names: object, project: str | None = None) -> list[Memory]:
    return [
        Memory(text=f"tide {name}", id=str(name), namespace="team", project=project)
        for name in names
    ]


async def test_only_old_deletions_are_forgotten(team, log: Log) -> None:
    _, _, remote = team
    await remote.add(tides("stays", "old", "back"))
    await remote.delete("old")
    await remote.delete("back")
    await remote.restore("back")
    log.age()
    await remote.add(tides("new"))
    await remote.delete("new")
    assert await log.prune() == 1
    assert log.rows() == {"stays": False, "back": False, "new": True}
    assert await log.prune() == 0


async def test_a_machine_that_was_away_for_long_loses_the_deleted_and_nothing_else(
    team, log: Log
) -> None:
    ada, ben, remote = team
    await remote.add(tides("deleted", "kept", "edited", "dropped", "both"))
    await remote.add(tides("of the shop", "deleted of the shop", project=SHOP))
    await ada.texts()
    await ada.sync()
    await ada.sync()
    await ada.store.add([Memory(text="tide mine", id="mine")])
    # Ada is away, and works.
    for id in ("deleted", "deleted of the shop", "both"):
        assert await remote.delete(id)
    for id in ("edited", "both"):
        stored = await ada.store.get(id)
        assert stored is not None
        await ada.store.update(replace(stored, text=f"tide {id} by ada"))
    await ada.store.delete("dropped")
    await ada.store.add(tides("written"))
    assert await log.pass_and_prune() == 3
    waiting = {write.id for write in await ada.store.outgoing()}
    assert waiting == {"edited", "both", "dropped", "written"}
    # Pulling comes first here, to show that it spares what waits.
    await ada.replication.pull()
    assert {write.id for write in await ada.store.outgoing()} == waiting
    await ada.sync()
    common = {"tide kept", "tide edited by ada", "tide both by ada", "tide written"}
    assert await ada.texts() == common | {"tide of the shop", "tide mine"}
    assert await ada.store.outgoing() == []
    assert {memory.text for memory in await remote.list(Scope())} == common | {"tide of the shop"}
    with as_superuser(log.url) as connection:
        (stored_once,) = connection.execute(
            "SELECT count(*) FROM upwell.audit "
            "WHERE action = 'store' AND 'written' = ANY(string_to_array(subject, ' '))"
        ).fetchall()
    assert stored_once == (1,)
    await ben.texts()
    await ben.sync()
    await ben.sync()
    assert await ben.texts() == common | {"tide of the shop"}


async def test_copies_that_are_up_to_date_go_on(team, log: Log, tmp_path: Path) -> None:
    ada, _, remote = team
    await remote.add(tides("a", "b"))
    await ada.sync()
    await remote.delete("a")
    await ada.sync()
    before = cursor_of(ada, tmp_path / "ada")
    assert await log.pass_and_prune() == 1
    (page,) = await ada.shared.pages([before])
    assert page == ChangePage([], before, is_last=True)
    await remote.add(tides("c"))
    (page,) = await ada.shared.pages([before])
    assert [change.id for change in page.changes] == ["c"]


async def test_a_new_copy_needs_no_deletions(team, log: Log, tmp_path: Path) -> None:
    ada, ben, remote = team
    await remote.add(tides("a", "b"))
    await remote.delete("b")
    await ada.sync()
    assert await log.pass_and_prune() == 1
    for machine in (ada, ben):
        await machine.sync()
        assert await machine.texts() == {"tide a"}
    (page,) = await ben.shared.pages([cursor_of(ben, tmp_path / "ben")])
    assert (page.changes, page.is_last) == ([], True)


async def test_deletions_between_two_pages_of_one_filling(
    team, log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "PAGE", 10)
    await remote.add(tides(*(f"m{n:02}" for n in range(35))))
    await ada.store.begin(await ada.shared.identity())
    cursors = await ada.store.cursors()
    for _ in range(3):
        (page,) = await ada.shared.pages(cursors)
        await ada.store.take(page)
        cursors = [page.cursor]
    assert len(await ada.texts()) == 20
    await remote.delete("m05")
    await remote.delete("m30")
    assert await log.pass_and_prune() == 2
    assert cursor_of(ada, tmp_path / "ada") == cursors[0]
    await ada.sync()
    assert await ada.texts() == {f"tide m{n:02}" for n in range(35) if n not in (5, 30)}


async def test_deletions_in_the_middle_of_one_transaction(
    team, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "PAGE", 10)
    now = remote._clock.now()
    expiring = [replace(memory, expires_at=now + 60) for memory in tides(*range(100, 130))]
    await remote.add([*tides("stays"), *expiring])
    await ada.sync()
    remote._clock.advance(120)
    assert await remote.purge() == 30
    (page,) = await ada.shared.pages(await ada.store.cursors())
    await ada.store.take(page)
    assert (await ada.store.copy_state()).memories == 21
    assert await log.pass_and_prune() == 30
    await ada.sync()
    assert (await ada.store.copy_state()).memories == 1


async def test_a_backup_restored_while_a_copy_is_filled(
    team, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "PAGE", 2)
    for name in ("a", "b", "c", "d"):
        await remote.add(tides(name))
    await ada.store.begin(await ada.shared.identity())
    cursors = await ada.store.cursors()
    for _ in range(2):
        (page,) = await ada.shared.pages(cursors)
        await ada.store.take(page)
        cursors = [page.cursor]
    assert cursors[0].base == 4
    with as_superuser(log.url) as connection:
        connection.execute("UPDATE upwell.tenant SET version = 3")
        for table in ("memory", "change"):
            connection.execute(f"DELETE FROM upwell.{table} WHERE id IN ('a', 'd')")
    await ada.sync()
    assert await ada.texts() == {"tide b", "tide c"}


async def test_two_replicas_prune_while_others_write(
    team, log: Log, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_pruning, "BATCH", 7)
    await remote.add(tides(*range(60)))
    await ada.sync()
    for n in range(50):
        await remote.delete(str(n))
    log.age()
    second = Postgres(url)
    prunings = [Pruning(each, DEFAULT_TENANT, DAYS) for each in (log.postgres, second)]
    try:
        counts = await asyncio.gather(
            *(pruning.run() for pruning in prunings),
            *(remote.restore(str(n)) for n in range(5)),
            *(remote.add(tides(f"new{n}")) for n in range(10)),
        )
    finally:
        await second.aclose()
    gone = [id for id, is_gone in log.rows().items() if is_gone]
    assert gone == []
    assert 45 <= sum(counts[:2]) <= 50
    await ada.sync()
    assert (await ada.store.copy_state()).memories == 60 - 45 + 10


@pytest.mark.slow
async def test_pruning_at_every_moment_of_a_pull(team, log: Log, url: str) -> None:
    """Each deletion is forgotten as soon as it is in the log, while a copy reads."""
    ada, _, remote = team
    shared = PostgresSharedMemories(log.postgres)
    second = Postgres(url)
    at_once = Pruning(second, DEFAULT_TENANT, 0)
    machine = Machine(ada.store, ada.project, shared)
    await remote.add(tides(*range(40)))
    await machine.sync()

    async def prune() -> None:
        while True:
            await at_once.run()

    pruning = asyncio.create_task(prune())
    try:
        for n in range(30):
            await asyncio.gather(remote.delete(str(n)), machine.sync())
            await remote.add(tides(f"more{n}"))
        await machine.sync()
        assert await machine.texts() == {m.text for m in await remote.list(Scope())}
    finally:
        pruning.cancel()
        await asyncio.wait([pruning])
        await second.aclose()
    assert not any(log.rows().values())
