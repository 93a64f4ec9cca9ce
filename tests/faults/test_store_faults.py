"""The store under faults of the disk, the file or another process."""

import os
import random
import resource
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError, StoreUnwritable
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.sqlite.store import OWNER, SqliteStore


def opened(path: Path) -> tuple[SqliteStore, object]:
    database = open_database(path, [OWNER], synchronous="FULL")
    return SqliteStore(database), database


async def filled(path: Path, count: int = 400) -> None:
    store, database = opened(path)
    await store.add(
        [Memory(text=f"note {i} about kettle {i % 7} {'x' * 80}", id=f"m{i}") for i in range(count)]
    )
    await database.aclose()


async def found(store: SqliteStore, text: str) -> int:
    return len((await StoreRecall(store).search(Query(texts=(text,)), Deadline.after(30))).hits)


async def test_a_file_that_is_not_a_database_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(b"this is not a database, it is a letter" * 200)
    store, database = opened(path)
    assert await store.list(Scope()) == []
    await store.add([Memory(text="kettle")])
    assert await found(store, "kettle") == 1
    aside = list(tmp_path.glob("memory.db.corrupt-*"))
    assert len(aside) == 1
    assert aside[0].read_bytes().startswith(b"this is not a database")
    await database.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
async def test_a_random_page_overwritten_never_crashes_and_most_rows_survive(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    rng = random.Random(seed)
    pages = path.stat().st_size // 4096
    with path.open("r+b") as file:
        file.seek(rng.randrange(1, pages) * 4096)
        file.write(rng.randbytes(4096))
    store, database = opened(path)
    await found(store, "kettle 3")
    await store.add([Memory(text="after the damage", id="new")])
    assert await store.get("new") is not None
    left = len(await store.list(Scope(), limit=1000))
    if list(tmp_path.glob("*.corrupt-*")):
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert left >= 340
        assert await found(store, "kettle 3") > 0
    await database.aclose()


async def test_damage_found_at_run_time_is_repaired_at_run_time(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    a, first = opened(path)
    b, second = opened(path)
    await b.add([Memory(text="kept by b before", id="before")])
    await first.checkpoint()
    with path.open("r+b") as file:
        size = path.stat().st_size
        for page in range(3, size // 4096, 2):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    for store in (a, b):
        await found(store, "kettle 3")
    await a.add([Memory(text="said by a", id="a")])
    await b.add([Memory(text="said by b", id="b")])
    assert await a.get("b") is not None
    assert await b.get("a") is not None
    assert len(list(tmp_path.glob("memory.db.corrupt-*"))) >= 1
    await first.aclose()
    await second.aclose()


async def test_a_sound_file_is_never_moved_aside(tmp_path: Path) -> None:
    from upwell.ground.sqlite.database import OpenPlan, repair

    path = tmp_path / "memory.db"
    await filled(path, 20)
    repair(OpenPlan(path, (OWNER,), "FULL"))
    assert not list(tmp_path.glob("*.corrupt-*"))


async def test_a_database_locked_by_another_process_is_a_clear_error(
    tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "memory.db"
    await filled(path, 5)
    monkeypatch.setattr("upwell.ground.sqlite.file.BUSY_TIMEOUT_SECONDS", 0.2)
    store, database = opened(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnwritable) as refused:
            await store.add([Memory(text="kettle")])
        assert "locked" in refused.value.message
        assert await found(store, "kettle") > 0
        other.execute("ROLLBACK")
    await store.add([Memory(text="now it goes", id="late")])
    assert await store.get("late") is not None
    await database.aclose()


def limited(script: str, path: Path, limit: int | None) -> subprocess.CompletedProcess[str]:
    def preexec() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        capture_output=True,
        text=True,
        preexec_fn=preexec,
        check=False,
        timeout=60,
    )


FILL = """
    import asyncio, sys
    from pathlib import Path
    from upwell.ground.sqlite.database import open_database
    from upwell.ground.errors import StoreUnwritable
    from upwell.ground.types.memory import Memory
    from upwell.memory.sqlite.store import OWNER, SqliteStore

    async def main():
        store = SqliteStore(open_database(Path(sys.argv[1]), [OWNER], synchronous="FULL"))
        for i in range(400):
            try:
                await store.add([Memory(text=f"note {i} " + "x" * 2000, id=f"f{i}")])
            except StoreUnwritable as error:
                print("refused:", error, flush=True)
                return
            print(f"f{i}", flush=True)

    asyncio.run(main())
"""


async def test_a_full_disk_refuses_the_write_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path, 20)
    done = limited(FILL, path, 900_000)
    *acknowledged, last = done.stdout.splitlines()
    assert last.startswith("refused: cannot write"), done.stdout + done.stderr
    assert acknowledged
    store, database = opened(path)
    for memory_id in acknowledged:
        assert await store.get(memory_id) is not None
    await store.add([Memory(text="room again", id="again")])
    assert await found(store, "room again") >= 1
    await database.aclose()


async def test_a_folder_at_the_path_of_the_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "memory.db").mkdir()
    with pytest.raises(StoreUnwritable) as refused:
        opened(tmp_path / "memory.db")
    assert refused.value.hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
async def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path, 5)
    os.chown(path, 12345, 12345)
    with pytest.raises(StoreUnwritable) as refused:
        opened(path)
    assert "another user" in refused.value.message


async def test_a_purged_memory_leaves_no_bytes(tmp_path: Path) -> None:
    store, database = opened(tmp_path / "memory.db")
    await store.add([Memory(text=f"ordinary note {i}") for i in range(50)])
    await store.add([Memory(text="zanzibarian quixotry", id="secret", tags=("zanzibarian",))])
    await store.delete("secret")
    assert await store.purge("secret") == 1
    assert await store.restore("secret") is False
    await database.aclose()
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert b"zanzibarian" not in content, file
        assert b"quixotri" not in content, file


async def test_database_errors_become_store_errors(tmp_path: Path) -> None:
    store, database = opened(tmp_path / "memory.db")
    with pytest.raises(StoreError):
        await database.read(lambda db: db.execute("SELECT * FROM nothing"))
    assert (await store.ping()).ok
    await database.aclose()
