"""Snapshots of a team's memories on the machines of two developers, over a real PostgreSQL: read
directly, and through a gateway."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contracts.stores import open_sqlite, open_team
from tests.machines import SHOP, Machine, as_superuser

from upwell.ground.errors import StoreError
from upwell.ground.sqlite.file import DamagedFile
from upwell.ground.types.memory import Memory, Provenance, Scope, Trust
from upwell.memory.postgres import shared as postgres_shared
from upwell.memory.sqlite import team_store
from upwell.memory.sqlite.store import OWNER
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.exchange import Outgoing, RefusedWrite, Removal, WriteQueue, send
from upwell.testing import ManualClock


async def test_a_shared_memory_reaches_the_clone_of_another(team) -> None:
    ada, ben, _ = team
    memory = Memory(
        text="The tide turns at noon",
        id="m1",
        namespace="team/decisions",
        project=ada.project,
        paths=(f"{ada.project}/src/tide.py", "/home/ada/private.txt", "docs/tide.md"),
        source="/home/ada/notes.md",
        provenance=Provenance(door="cli", session="ada-session", tool="Read"),
        tags=("sea",),
    )
    await ada.store.add([memory])
    assert await ada.texts() == {"The tide turns at noon"}
    await ada.sync()
    assert await ben.texts() == set()
    await ben.sync()
    assert await ben.texts() == {"The tide turns at noon"}
    arrived = await ben.store.get("m1")
    assert arrived is not None
    assert arrived == await ada.store.get("m1")
    assert arrived.project == SHOP
    assert arrived.paths == ("src/tide.py", "docs/tide.md")
    assert arrived.provenance == Provenance(door="cli")
    assert (arrived.source, arrived.tags) == ("", ("sea",))


async def test_changes_deletions_and_restorations_reach_the_others(team) -> None:
    ada, ben, remote = team
    await ada.store.add([Memory(text="tide one", id="a", namespace="team")])
    await ada.store.add([Memory(text="tide two", id="b", namespace="team")])
    await ada.sync()
    await ben.sync()
    stored = await ben.store.get("a")
    assert stored is not None
    await ben.store.update(replace(stored, text="tide three"))
    assert await ben.store.delete("b")
    await ben.sync()
    await ada.sync()
    assert await ada.texts() == {"tide three"}
    assert [memory.id for memory in await remote.trash()] == ["b"]
    assert await ben.store.restore("b")
    await ben.sync()
    await ada.sync()
    assert await ada.texts() == {"tide three", "tide two"}
    assert await remote.trash() == []
    assert await ada.store.purge("b") == 1
    await ada.sync()
    await ben.sync()
    assert await ben.texts() == {"tide three"}
    assert await remote.trash() == []
    assert await remote.get("b") is None


async def test_what_a_replica_writes_reaches_the_machines_and_nothing_else(team) -> None:
    ada, _, remote = team
    await remote.add(
        [
            Memory(text="tide here", id="here", project=SHOP),
            Memory(text="tide elsewhere", id="elsewhere", project="github.com/acme/other"),
            Memory(text="tide of ada", id="private", namespace="me/1234/ideas"),
            Memory(text="tide of yesterday", id="expired", expires_at=1.0),
        ]
    )
    assert await ada.sync()
    assert await ada.texts() == {"tide here"}
    assert {m.id for m in await ada.store.list(Scope())} == {"here", "elsewhere"}
    assert not await ada.sync()
    await remote.delete("here")
    assert await ada.sync()
    assert await ada.texts() == set()
    assert await ada.store.trash() == []


async def test_personal_memories_stay_on_the_machine(team) -> None:
    ada, ben, remote = team
    mine = [
        Memory(text="tide mine", id="1"),
        Memory(text="tide private", id="2", namespace="me/ideas"),
        Memory(text="tide of an agent", id="3", namespace="team", trust=Trust.AGENT),
        Memory(text="tide teamwork", id="4", namespace="teamwork"),
    ]
    await ada.store.add(mine)
    await ada.sync()
    await ben.sync()
    assert await remote.list(Scope()) == []
    assert await ben.texts() == set()
    assert await ada.texts() == {memory.text for memory in mine}
    assert (await ada.store.state()).memories == 0


async def test_a_memory_that_becomes_private_leaves_the_others(team) -> None:
    ada, ben, _ = team
    await ada.store.add([Memory(text="tide", id="m", namespace="team")])
    await ada.sync()
    await ben.sync()
    stored = await ada.store.get("m")
    assert stored is not None
    await ada.store.update(replace(stored, namespace="me/ideas"))
    await ada.sync()
    await ben.sync()
    assert await ben.texts() == set()
    assert await ada.texts() == {"tide"}


async def test_a_folder_without_a_remote_address_stays_local(team, tmp_path: Path) -> None:
    ada, _, remote = team
    await ada.store.add([Memory(text="tide", namespace="team", project=str(tmp_path / "x"))])
    await ada.sync()
    assert await remote.list(Scope()) == []
    assert (await ada.store.state()).memories == 0


async def test_a_foreign_memory_supersedes_no_own_one(team) -> None:
    ada, ben, remote = team
    await ada.store.add([Memory(text="tide mine", id="mine"), Memory(text="tide old", id="old")])
    await ada.store.add([Memory(text="tide new", id="new", namespace="team", supersedes="old")])
    await remote.add([Memory(text="tide theirs", id="theirs")])
    await remote.add(
        [
            Memory(text="tide attack", id="attack", namespace="team", supersedes="mine"),
            Memory(text="tide change", id="change", namespace="team", supersedes="theirs"),
        ]
    )
    for machine in (ada, ben, ada):
        await machine.sync()
    await remote.add([Memory(text="tide later", id="later")])
    await ada.sync()
    superseded = await ada.store.superseded(["mine", "old", "theirs"])
    assert superseded == {"old": "new", "theirs": "change"}


async def test_a_memory_of_the_same_id_is_not_overwritten(team) -> None:
    ada, _, remote = team
    await ada.store.add([Memory(text="tide mine", id="m")])
    await remote.add([Memory(text="tide theirs", id="m")])
    await ada.sync()
    assert await ada.texts() == {"tide mine"}
    await remote.delete("m")
    await ada.sync()
    assert await ada.texts() == {"tide mine"}


async def test_an_own_change_that_waits_wins_until_it_is_sent(team) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide", id="m", namespace="team")])
    await ada.sync()
    stored = await ada.store.get("m")
    assert stored is not None
    await ada.store.update(replace(stored, text="tide of ada"))
    await remote.update(replace(stored, text="tide of ben"))
    await ada.store.refresh(ada.shared)
    assert await ada.texts() == {"tide of ada"}
    await ada.sync()
    final = await remote.get("m")
    assert final is not None
    assert {final.text} == await ada.texts() == {"tide of ada"}


async def test_only_what_changed_is_stored_again(team, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, _, remote = team
    written: list[str] = []
    store = team_store.store_snapshot

    def counted(db: sqlite3.Connection, memories: Sequence[Memory]) -> None:
        written.extend(memory.id for memory in memories)
        store(db, memories)

    monkeypatch.setattr(team_store, "store_snapshot", counted)
    odd = Memory(text="odd \0 tide", id="odd", lines=(2, 3), triggers=("error:1",), tags=("é",))
    await remote.add([odd, *(Memory(text=f"tide {n}", id=f"m{n}") for n in range(550))])
    await ada.sync()
    assert len(written) == len(set(written)) == 551
    await remote.add([Memory(text="tide new", id="new")])
    written.clear()
    await ada.sync()
    assert written == ["new"]
    assert len(await ada.store.list(Scope(), limit=1_000)) == 552


async def test_a_large_team_sends_the_last_changed(team, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "MAX_MEMORIES", 5)
    for n in range(12):
        await remote.add([Memory(text=f"tide {n}", id=f"m{n:02}")])
    await ada.sync()
    assert await ada.texts() == {f"tide {n}" for n in range(7, 12)}


async def test_a_store_restored_from_a_backup_is_read_again(team, url: str) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide kept", id="kept")])
    await remote.add([Memory(text="tide lost", id="lost")])
    await ada.sync()
    with as_superuser(url) as connection:
        connection.execute("UPDATE upwell.tenant SET version = version")
        connection.execute("DELETE FROM upwell.memory WHERE id = 'lost'")
    await ada.sync()
    assert await ada.texts() == {"tide kept"}


async def test_the_snapshot_of_another_team_is_removed_with_what_waited_for_it(team) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide theirs", id="theirs")])
    await ada.sync()
    await ada.store.add([Memory(text="tide waits", id="waits", namespace="team")])
    await ada.store.add([Memory(text="tide mine", id="mine")])
    await ada.store.begin("another store")
    assert await ada.texts() == {"tide waits", "tide mine"}
    assert ada.waiting() == []
    with pytest.raises(StoreError, match="replaced"):
        await ada.store.refresh(ada.shared)


async def test_a_write_that_the_store_refuses_holds_up_no_other(team) -> None:
    ada, _, remote = team

    class Refusing:
        """Refuses every batch with the write `bad`, like a database that cannot store it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(ada.shared, name)

        async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
            if any(write.id == "bad" for write in writes):
                raise StoreError("too long", hint="")
            return await ada.shared.receive(writes)

    for id in ("bad", "a", "c"):
        await ada.store.add([Memory(text=f"tide {id}", id=id, namespace="team")])
    ada.store.queue.settle((), [RefusedWrite(ada.waiting()[0].token, "no")])
    await send(ada.store.queue, Refusing(), again=False)  # type: ignore[arg-type]
    assert {memory.id for memory in await remote.list(Scope())} == {"a", "c"}
    await send(ada.store.queue, Refusing())  # type: ignore[arg-type]
    (refused,) = ada.store.queue.read()
    assert (refused.write.id, refused.reason) == ("bad", "too long")
    assert "tide bad" in await ada.texts()


async def test_a_write_that_arrives_twice_takes_effect_once(team) -> None:
    ada, _, remote = team
    await ada.store.add([Memory(text="tide", id="m", namespace="team")])
    await ada.shared.receive(ada.waiting())
    # The acknowledgement is lost, and a colleague changes the memory meanwhile.
    stored = await remote.get("m")
    assert stored is not None
    await remote.update(replace(stored, text="tide of ben"))
    await ada.sync()
    final = await remote.get("m")
    assert final is not None
    assert final.text == "tide of ben"
    assert await ada.texts() == {"tide of ben"}


async def test_a_memory_that_changes_while_it_is_sent_is_sent_again(team) -> None:
    ada, _, remote = team
    await ada.store.add([Memory(text="tide one", id="m", namespace="team")])
    writes = ada.waiting()
    stored = await ada.store.get("m")
    assert stored is not None
    await ada.store.update(replace(stored, text="tide two"))
    await ada.shared.receive(writes)
    ada.store.queue.settle([write.token for write in writes], [])
    await ada.sync()
    final = await remote.get("m")
    assert final is not None
    assert final.text == "tide two"


async def test_deleted_memories_leave_no_trace_in_the_file(team, tmp_path: Path) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide xylographer", id="m")])
    await ada.sync()
    await remote.purge("m")
    await ada.sync()
    await ada.store.purge()
    content = b"".join(path.read_bytes() for path in (tmp_path / "ada").glob("memory.db*"))
    assert b"xylograph" not in content


async def test_a_damaged_file_sends_nothing_again_and_is_filled_anew(team, tmp_path: Path) -> None:
    ada, _, remote = team
    for id in ("sent", "waits"):
        await ada.store.add([Memory(text=f"tide {id}", id=id, namespace="team")])
        if id == "sent":
            await ada.sync()
    await remote.add([Memory(text="tide theirs", id="theirs")])
    await ada.store.refresh(ada.shared)
    before = ada.waiting()
    assert [write.id for write in before] == ["waits"]
    store, close = open_team(tmp_path, ManualClock())
    assert isinstance(store, TeamStore)
    store.queue = ada.store.queue
    with (
        closing(sqlite3.connect(tmp_path / "ada" / "memory.db")) as damaged,
        closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as fresh,
    ):
        damaged.execute("DELETE FROM memory WHERE id = 'theirs'")
        for owner in (OWNER, team_store.snapshot_owner(store.queue)):
            assert owner.salvage is not None
            owner.salvage(DamagedFile(damaged), fresh)
    machine = Machine(store, ada.project, ada.shared)
    assert machine.waiting() == before
    await machine.sync()
    texts = {memory.text for memory in await store.list(Scope())}
    assert texts == {"tide sent", "tide waits", "tide theirs"}
    assert machine.waiting() == []
    await remote.delete("sent")
    await machine.sync()
    assert "tide sent" not in await machine.texts()
    await close()


def test_a_torn_line_of_the_queue_costs_only_the_write_that_was_torn(tmp_path: Path) -> None:
    queue = WriteQueue(tmp_path / "queue")
    queue.append([Outgoing("t" * 16, "a", Removal.TRASH)], 1.0)
    with queue.path.open("ab") as file:
        file.write(b'{"write": {"tok')
    queue.append([Outgoing("u" * 16, "b", Memory(text="odd \ud800", id="b"))], 2.0)
    assert [entry.write.id for entry in queue.read()] == ["a", "b"]
    assert queue.path.stat().st_mode & 0o777 == 0o600
    queue.settle(["t" * 16, "u" * 16], [])
    assert not queue.path.exists()


async def test_writes_that_an_earlier_version_left_are_sent_once(team, tmp_path: Path) -> None:
    """`memory.db` of 0.2.0 had a copy of single memories, and an outbox."""
    ada, ben, remote = team
    await remote.add([Memory(text=f"tide {id}", id=id) for id in ("old", "trashed", "purged")])
    own = [Memory(text=f"tide {id}", id=id, namespace="team") for id in ("old", "new", "trashed")]
    store, close = open_sqlite(tmp_path, ManualClock())
    await store.add([*own, Memory(text="tide gone", id="gone")])
    await store.delete("trashed")
    await close()
    with sqlite3.connect(tmp_path / "memory.db") as db:
        db.executescript(OUTBOX)
        db.execute("INSERT INTO team VALUES (1, 0, ?, 1.0)", [f"{await ada.shared.identity()}/x"])
    db.close()
    for _ in range(2):
        store, close = open_team(tmp_path, ManualClock())
        assert isinstance(store, TeamStore)
        machine = Machine(store, ada.project, ada.shared)
        await machine.sync()
        await close()
    assert {memory.id for memory in await remote.list(Scope())} == {"old", "new"}
    assert [memory.id for memory in await remote.trash()] == ["trashed"]
    with sqlite3.connect(tmp_path / "memory.db") as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        versions = dict(db.execute("SELECT owner, version FROM schema_version"))
    db.close()
    assert versions["team"] == 2  # a process of 0.2.0 that still runs must be restarted
    assert not names & {"team", "outbox", "team_memory", "team_project", "team_stored"}
    await ben.sync()
    assert await ben.texts() == {"tide old", "tide new"}


OUTBOX = """
    CREATE TABLE team (one INTEGER PRIMARY KEY, is_copying INTEGER, source TEXT, checked_at REAL);
    CREATE TABLE team_project (project TEXT PRIMARY KEY, version INTEGER) WITHOUT ROWID;
    CREATE TABLE team_memory (id TEXT PRIMARY KEY, project TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO team_memory VALUES ('old', ''), ('new', ''), ('gone', '');
    CREATE TABLE outbox (id TEXT PRIMARY KEY, token TEXT NOT NULL, at REAL NOT NULL,
        error TEXT NOT NULL DEFAULT '') WITHOUT ROWID;
    INSERT INTO outbox (id, token, at) VALUES ('new', '11111111111111111111111111111111', 1.0),
        ('trashed', '22222222222222222222222222222222', 2.0),
        ('purged', '33333333333333333333333333333333', 3.0);
    CREATE TRIGGER team_stored AFTER INSERT ON memory BEGIN SELECT 1; END;
    CREATE TRIGGER team_removed AFTER DELETE ON memory BEGIN SELECT 1; END;
    INSERT INTO schema_version VALUES ('team', 1);
"""
