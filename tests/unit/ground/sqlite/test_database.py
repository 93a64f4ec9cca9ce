"""Databases: migrations, versions, pragmas, copies before a migration, errors."""

import asyncio
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.errors import StoreCorrupt, StoreError, StoreTooNew, StoreUnwritable, UsageError
from upwell.ground.sqlite.database import Owner, open_database
from upwell.ground.sqlite.file import from_sqlite, vacuum_into


def first(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")


def second(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE note ADD COLUMN mood TEXT DEFAULT 'calm'")


V1 = Owner("notes", [first])
V2 = Owner("notes", [first, second])


async def write_note(path: Path, owner: Owner, text: str) -> None:
    database = open_database(path, [owner], synchronous="FULL")
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES (?)", (text,)))
    await database.aclose()


async def test_a_file_is_private_in_wal_mode_and_fully_synchronous(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    database = open_database(path, [V1], synchronous="FULL")
    for lane in (database.read, database.write):
        pragmas = await lane(
            lambda db: [
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
            ]
        )
        assert pragmas == ["wal", 2, 1, 1]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await database.aclose()


async def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    database = open_database(tmp_path / "m.db", [V1], synchronous="FULL")

    def half(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO note (text) VALUES ('lost')")
        raise UsageError("no")

    with pytest.raises(UsageError):
        await database.write(half)
    assert await database.read(lambda db: db.execute("SELECT * FROM note").fetchall()) == []
    await database.aclose()


async def test_writes_requested_together_are_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    database = open_database(path, [V1], synchronous="NORMAL")

    def insert(db: sqlite3.Connection) -> int:
        db.execute("INSERT INTO note (text) VALUES ('both')")
        with closing(sqlite3.connect(path)) as other:
            return len(_texts(other))

    writes = (database.write_grouped(insert), database.write_grouped(insert))
    assert await asyncio.gather(*writes) == [0, 0]
    assert await database.write_grouped(insert) == 2
    await database.aclose()


async def test_a_write_that_fails_costs_its_group_nothing(tmp_path: Path) -> None:
    database = open_database(tmp_path / "m.db", [V1], synchronous="NORMAL")

    def insert(text: str) -> Callable[[sqlite3.Connection], object]:
        return lambda db: db.execute("INSERT INTO note (text) VALUES (?)", (text,))

    texts = ["first", "lone \udc00", "last"]
    writes = [database.write_grouped(insert(text)) for text in texts]
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [isinstance(result, UsageError) for result in results] == [False, True, False]
    assert await database.read(_texts) == ["first", "last"]
    await database.aclose()


async def test_a_cancelled_caller_holds_up_no_other_write(tmp_path: Path) -> None:
    database = open_database(tmp_path / "m.db", [V1], synchronous="NORMAL")
    insert = "INSERT INTO note (text) VALUES ('kept')"
    cancelled = asyncio.create_task(database.write_grouped(lambda db: db.execute(insert)))
    other = asyncio.create_task(database.write_grouped(lambda db: db.execute(insert)))
    await asyncio.sleep(0)
    cancelled.cancel()
    await other
    assert await database.write_grouped(lambda db: len(_texts(db))) == 2
    await database.aclose()


async def test_migrations_run_once_and_keep_the_data(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await write_note(path, V1, "old")
    await write_note(path, V2, "new")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT text, mood FROM note").fetchall() == [
            ("old", "calm"),
            ("new", "calm"),
        ]


async def test_a_copy_is_made_before_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await write_note(path, V1, "old")
    assert not (tmp_path / "backups").exists()
    await write_note(path, V2, "new")
    copy = tmp_path / "backups" / "m-before-notes-v2.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("SELECT * FROM note").fetchall() == [(1, "old")]


async def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await write_note(path, V2, "from the future")
    before = path.read_bytes()
    with pytest.raises(StoreTooNew) as refused:
        open_database(path, [V1], synchronous="FULL")
    assert "schema 2" in refused.value.message
    assert refused.value.hint
    assert path.read_bytes() == before


async def test_owners_are_versioned_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    other = Owner("other", [lambda db: db.execute("CREATE TABLE other (x)") and None])
    await write_note(path, V1, "x")
    database = open_database(path, [V2, other], synchronous="FULL")
    versions = await database.read(
        lambda db: db.execute("SELECT owner, version FROM schema_version").fetchall()
    )
    assert versions == [("notes", 2), ("other", 1)]
    await database.aclose()


async def test_changes_of_another_connection_show_in_the_data_version(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    a = open_database(path, [V1], synchronous="FULL")
    b = open_database(path, [V1], synchronous="FULL")
    before = await a.data_version()
    assert await a.data_version() == before
    await b.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('b')"))
    assert await a.data_version() != before
    await a.aclose()
    await b.aclose()


async def test_connections_follow_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    database = open_database(path, [V1], synchronous="FULL")
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('old')"))
    version = await database.data_version()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").rename(f"{tmp_path / 'aside'}{suffix}")
    assert await database.read(lambda db: db.execute("SELECT * FROM note").fetchall()) == []
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('new')"))
    assert await database.data_version() != version
    await database.aclose()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT text FROM note").fetchall() == [("new",)]


async def test_an_inline_read_sees_writes_and_follows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    database = open_database(path, [V1], synchronous="FULL")
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('old')"))
    assert await database.inline_read(_texts) == ["old"]
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").rename(f"{tmp_path / 'aside'}{suffix}")
    assert await database.inline_read(_texts) == []
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('new')"))
    assert await database.inline_read(_texts) == ["new"]
    await database.aclose()


async def test_concurrent_inline_reads_follow_a_file_that_was_replaced(tmp_path: Path) -> None:
    database = open_database(tmp_path / "m.db", [V1], synchronous="FULL")
    await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('old')"))

    async def many() -> None:
        for _ in range(20):
            assert len(await database.inline_read(_texts)) <= 1
            await asyncio.sleep(0)

    for _ in range(15):
        readers = [asyncio.create_task(many()) for _ in range(8)]
        for suffix in ("", "-wal", "-shm"):
            Path(f"{tmp_path / 'm.db'}{suffix}").rename(f"{tmp_path / 'aside'}{suffix}")
        await asyncio.gather(*readers)
        await database.write(lambda db: db.execute("INSERT INTO note (text) VALUES ('new')"))
        assert await database.inline_read(_texts) == ["new"]
    await database.aclose()


async def test_an_inline_read_never_waits_for_a_lock_on_the_event_loop(tmp_path: Path) -> None:
    database = open_database(tmp_path / "m.db", [V1], synchronous="FULL")
    patience: list[tuple[str, int]] = []

    def look(db: sqlite3.Connection) -> str:
        waits = db.execute("PRAGMA busy_timeout").fetchone()[0]
        patience.append((threading.current_thread().name, waits))
        if not waits:
            raise sqlite3.OperationalError("database is locked")
        return "seen"

    assert await database.inline_read(look) == "seen"
    (here, none), (lane, some) = patience
    assert here == threading.current_thread().name != lane
    assert none == 0 < some
    await database.aclose()


def _texts(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT text FROM note")]


async def test_many_open_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    made = await asyncio.gather(
        *(asyncio.to_thread(open_database, path, [V2], synchronous="FULL") for _ in range(8))
    )
    for database in made:
        await database.aclose()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT version FROM schema_version").fetchall() == [(2,)]


async def test_a_copy_is_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await write_note(path, V1, "x")
    with closing(sqlite3.connect(path)) as db:
        vacuum_into(db, tmp_path / "copy.db")
        vacuum_into(db, tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as db:
        assert db.execute("SELECT text FROM note").fetchall() == [("x",)]
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert not list(tmp_path.glob("*.partial"))


def failing(name: str, text: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("SQLITE_CORRUPT", "database disk image is malformed", StoreCorrupt),
        ("SQLITE_CORRUPT_VTAB", "database disk image is malformed", StoreCorrupt),
        ("SQLITE_NOTADB", "file is not a database", StoreCorrupt),
        ("SQLITE_BUSY", "database is locked", StoreUnwritable),
        ("SQLITE_FULL", "database or disk is full", StoreUnwritable),
        ("SQLITE_IOERR_WRITE", "disk I/O error", StoreUnwritable),
        ("SQLITE_READONLY_DBMOVED", "attempt to write a readonly database", StoreUnwritable),
        ("SQLITE_CANTOPEN", "unable to open database file", StoreUnwritable),
        ("SQLITE_ERROR", "no such table: full", StoreCorrupt),
        ("SQLITE_ERROR", "Could not decode to UTF-8 column 'text'", StoreCorrupt),
        ("SQLITE_ERROR", 'near "full": syntax error', StoreError),
    ],
)
def test_errors_are_mapped(name: str, text: str, kind: type[StoreError]) -> None:
    mapped = from_sqlite(failing(name, text), Path("/x/m.db"))
    assert type(mapped) is kind
    assert "/x/m.db" in mapped.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreUnwritable):
            open_database(tmp_path / "m.db", [V1], synchronous="FULL")
    finally:
        tmp_path.chmod(0o700)
