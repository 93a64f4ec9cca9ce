"""Copies of a team's memories on the machines of two developers, over a real PostgreSQL: directly,
and through a gateway."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contracts.stores import open_team
from tests.machines import SHOP, Machine, as_superuser

from upwell.ground.errors import StoreError
from upwell.ground.postgres import schema
from upwell.ground.postgres.connection import Postgres
from upwell.ground.sqlite.readable import DamagedFile
from upwell.ground.types.memory import Memory, Provenance, Scope, Trust
from upwell.memory.postgres import shared as postgres_shared
from upwell.memory.postgres.shared import PostgresSharedMemories
from upwell.memory.sqlite import team_store
from upwell.memory.sqlite.copied import OWNER as COPY_OWNER
from upwell.memory.sqlite.store import OWNER
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.base import Outgoing, RefusedWrite
from upwell.memory.team.replication import Replication
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


async def test_what_a_replica_writes_reaches_the_copies(team) -> None:
    ada, _, remote = team
    await remote.add(
        [
            Memory(text="tide here", id="here", project=SHOP),
            Memory(text="tide elsewhere", id="elsewhere", project="github.com/acme/other"),
            Memory(text="tide of ada", id="private", namespace="me/1234/ideas"),
        ]
    )
    await ada.sync()
    assert await ada.texts() == set()
    assert ada.store.wanted.is_set()
    await ada.sync()
    assert await ada.texts() == {"tide here"}
    await remote.delete("here")
    await ada.sync()
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
    state = await ada.store.copy_state()
    assert (state.memories, state.waiting) == (0, 0)


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
    assert (await ada.store.copy_state()).memories == 0


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
    await ada.replication.pull()
    assert await ada.texts() == {"tide of ada"}
    await ada.sync()
    final = await remote.get("m")
    assert final is not None
    assert {final.text} == await ada.texts() == {"tide of ada"}


async def test_only_what_changed_is_read(team, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "PAGE", 10)
    await remote.add([Memory(text=f"tide {n}", id=f"m{n}") for n in range(35)])
    await ada.sync()
    assert len(await ada.texts()) == 35
    await remote.add([Memory(text="tide new", id="new")])
    pages = await ada.shared.pages(await ada.store.cursors())
    assert [change.id for page in pages for change in page.changes] == ["new"]


async def test_a_copy_has_the_last_changed_memories(team, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, _, remote = team
    monkeypatch.setattr(postgres_shared, "MAX_COPIED", 5)
    for n in range(12):
        await remote.add([Memory(text=f"tide {n}", id=f"m{n:02}")])
    await ada.sync()
    assert await ada.texts() == {f"tide {n}" for n in range(7, 12)}


async def test_memories_from_before_the_change_log_are_copied(team, url: str) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide", id="old")])
    with as_superuser(url) as connection:
        connection.execute("DROP TABLE upwell.change")
        connection.execute("DROP FUNCTION upwell.note_changes CASCADE")
        connection.execute("DROP TABLE upwell.embedding, upwell.embedding_model")
        connection.execute("DROP FUNCTION upwell.forget_embeddings CASCADE")
        connection.execute("ALTER TABLE upwell.tenant DROP COLUMN identity")
        connection.execute(
            "ALTER TABLE upwell.scope DROP COLUMN pruned_version, DROP COLUMN pruned_id"
        )
        number = schema.MIGRATIONS.index(schema._CHANGES) + 1
        connection.execute("DELETE FROM upwell.migration WHERE number >= %s", [number])
    postgres = Postgres(url)
    try:
        newer = Machine(ada.store, ada.project, PostgresSharedMemories(postgres))
        await newer.sync()
        assert await newer.texts() == {"tide"}
        with as_superuser(url) as connection:
            forced = connection.execute(
                "SELECT relname FROM pg_class WHERE relrowsecurity AND NOT relforcerowsecurity"
            ).fetchall()
        assert forced == []
    finally:
        await postgres.aclose()


async def test_a_store_restored_from_a_backup_is_copied_again(team, url: str) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide kept", id="kept")])
    await remote.add([Memory(text="tide lost", id="lost")])
    await ada.sync()
    with as_superuser(url) as connection:
        connection.execute("UPDATE upwell.tenant SET version = 1")
        connection.execute("DELETE FROM upwell.memory WHERE id = 'lost'")
        connection.execute("DELETE FROM upwell.change WHERE id = 'lost'")
    await ada.sync()
    assert await ada.texts() == {"tide kept"}


async def test_the_copy_of_another_team_is_removed_with_what_waited_for_it(
    team, tmp_path: Path
) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide theirs", id="theirs")])
    await ada.sync()
    await ada.store.add([Memory(text="tide waits", id="waits", namespace="team")])
    await ada.store.add([Memory(text="tide mine", id="mine")])
    await ada.store.begin("another store")
    assert await ada.texts() == {"tide waits", "tide mine"}
    assert await ada.store.outgoing() == []


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

    for id in ("a", "bad", "c"):
        await ada.store.add([Memory(text=f"tide {id}", id=id, namespace="team")])
    await Replication(ada.store, Refusing()).run()  # type: ignore[arg-type]
    assert {memory.id for memory in await remote.list(Scope())} == {"a", "c"}
    state = await ada.store.copy_state()
    assert (state.waiting, state.refused) == (1, "too long")
    assert not await ada.store.has_outgoing()


async def test_a_write_that_arrives_twice_takes_effect_once(team) -> None:
    ada, _, remote = team
    await ada.store.add([Memory(text="tide", id="m", namespace="team")])
    writes = await ada.store.outgoing()
    await ada.shared.receive(writes)
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
    writes = await ada.store.outgoing()
    stored = await ada.store.get("m")
    assert stored is not None
    await ada.store.update(replace(stored, text="tide two"))
    await ada.shared.receive(writes)
    await ada.store.sent(writes)
    await ada.sync()
    final = await remote.get("m")
    assert final is not None
    assert final.text == "tide two"


async def test_writes_behind_many_refused_ones_are_tried_too(team, monkeypatch) -> None:
    monkeypatch.setattr(team_store, "WAITING_AT_ONCE", 2)
    ada, _, _ = team
    ids = [f"m{number}" for number in range(5)]
    await ada.store.add([Memory(text=f"tide {id}", id=id, namespace="team") for id in ids])
    tried: list[str] = []

    class Refusing:
        async def receive(self, writes):
            tried.extend(write.id for write in writes)
            return [RefusedWrite(write.token, "no") for write in writes]

    await Replication(ada.store, Refusing()).push()
    assert sorted(tried) == ids
    tried.clear()
    await Replication(ada.store, Refusing()).push()
    assert sorted(tried) == ids


async def test_deleted_memories_leave_no_trace_in_the_file(team, tmp_path: Path) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide xylographer", id="m")])
    await ada.sync()
    await remote.purge("m")
    await ada.sync()
    await ada.store.purge()
    content = b"".join(path.read_bytes() for path in (tmp_path / "ada").glob("memory.db*"))
    assert b"xylograph" not in content


async def test_the_projects_of_other_work_leave_the_copy(team, tmp_path: Path) -> None:
    ada, _, remote = team
    await remote.add([Memory(text="tide", id="m", project=SHOP)])
    await ada.texts()
    await ada.sync()
    assert await ada.texts() == {"tide"}
    with sqlite3.connect(tmp_path / "ada" / "memory.db") as db:
        db.execute("UPDATE team_project SET used_at = used_at - 1e8")
    ada.store._in_use.clear()
    await ada.sync()
    assert (await ada.store.copy_state()).memories == 0


async def test_a_damaged_file_sends_nothing_again_and_is_copied_anew(team, tmp_path: Path) -> None:
    ada, _, remote = team
    for id in ("sent", "waits"):
        await ada.store.add([Memory(text=f"tide {id}", id=id, namespace="team")])
        if id == "sent":
            await ada.sync()
    await remote.add([Memory(text="tide theirs", id="theirs")])
    await ada.replication.pull()
    before = await ada.store.outgoing()
    open_team(tmp_path, ManualClock())
    with (
        closing(sqlite3.connect(tmp_path / "ada" / "memory.db")) as damaged,
        closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as fresh,
    ):
        damaged.execute("UPDATE team SET is_copying = 1")  # a lost row is no deletion
        damaged.execute("DELETE FROM memory WHERE id = 'theirs'")
        damaged.execute("UPDATE team SET is_copying = 0")
        for owner in (OWNER, COPY_OWNER):
            assert owner.salvage is not None
            owner.salvage(DamagedFile(damaged), fresh)
    store, close = open_team(tmp_path, ManualClock())
    assert isinstance(store, TeamStore)
    try:
        assert [write.id for write in before] == ["waits"]
        assert await store.outgoing() == before
        await Machine(store, ada.project, ada.shared).sync()
        texts = {memory.text for memory in await store.list(Scope())}
        assert texts == {"tide sent", "tide waits", "tide theirs"}
        assert await store.outgoing() == []
    finally:
        await close()
