"""Damage of every part of a database file: the file is moved aside, and the readable rows are
kept.
"""

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.ground.sqlite.backup import Backups
from upwell.ground.sqlite.database import Owner, open_database
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory, Scope
from upwell.learn.feedback import OWNER as RATINGS
from upwell.memory.sqlite.sources import OWNER as SOURCES
from upwell.memory.sqlite.store import OWNER, SqliteStore

ROWS = 300
OWNERS = [OWNER, SOURCES, RATINGS]


async def filled(path: Path, rows: int = ROWS) -> None:
    database = open_database(path, OWNERS, synchronous="FULL")
    await SqliteStore(database).add(
        [
            Memory(text=f"fact {i} about the kettle " + "steam " * (i % 900), id=f"m{i}")
            for i in range(rows)
        ]
    )
    await database.write(
        lambda db: db.execute(
            "INSERT INTO feedback VALUES ('t', 's', 'm', 'helpful', 1.0, 'ask', '', 0.5, '{}', 0)"
        )
    )
    await database.aclose()


async def texts_left(path: Path) -> set[str]:
    database = open_database(path, OWNERS, synchronous="FULL")
    store = SqliteStore(database)
    await store.add([Memory(text="after the damage", id="new")])
    left = await store.list(Scope(), limit=10_000)
    await database.aclose()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert "after the damage" in {memory.text for memory in left}
    return {memory.id for memory in left} - {"new"}


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


async def test_one_byte_of_the_schema_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    overwrite(path, path.read_bytes().find(b"CREATE TABLE schema_version") + 12, b"\xff")
    assert len(await texts_left(path)) == ROWS
    assert len(list(tmp_path.glob("memory.db.corrupt-*[0-9]"))) == 1
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT surfacing FROM feedback").fetchall() == [("s",)]


@pytest.mark.parametrize("name", [b"memory", b"words", b"namespace", b"fts5", b"schema_version"])
async def test_a_misspelt_name_in_the_schema_is_damage(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    content = path.read_bytes()
    path.write_bytes(content[:4096].replace(name, b"z" + name[1:]) + content[4096:])
    assert len(await texts_left(path)) == ROWS


async def test_a_lost_header_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    overwrite(path, 0, b"\xa5" * 100)
    assert len(await texts_left(path)) == ROWS


async def test_rows_from_before_a_migration_are_read_from_their_pages(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path, 20)

    def add_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE feedback ADD COLUMN added NOT NULL DEFAULT 7")

    later = Owner("feedback", [*RATINGS.migrations, add_column])
    overwrite(path, 0, b"\xa5" * 100)
    database = open_database(path, [OWNER, SOURCES, later], synchronous="FULL")
    rows = await database.read(
        lambda db: db.execute("SELECT surfacing, added FROM feedback").fetchall()
    )
    await database.aclose()
    assert rows == [("s", 7)]


async def test_a_lost_first_page_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    overwrite(path, 0, b"\xa5" * 4096)
    assert len(await texts_left(path)) == ROWS


async def test_rows_that_are_still_in_the_log_are_read_from_there(tmp_path: Path) -> None:
    path, copy = tmp_path / "memory.db", tmp_path / "copy" / "memory.db"
    copy.parent.mkdir()
    database = open_database(path, OWNERS, synchronous="FULL")
    await SqliteStore(database).add([Memory(text=f"fact {i}", id=f"m{i}") for i in range(40)])
    for suffix in ("", "-wal"):
        Path(f"{copy}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    await database.aclose()
    overwrite(copy, 0, b"\xa5" * 100)
    assert len(await texts_left(copy)) == 40


async def test_half_a_file_keeps_the_rows_of_that_half(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    os.truncate(path, path.stat().st_size // 2)
    assert len(await texts_left(path)) >= ROWS // 4


async def test_without_a_readable_row_those_of_the_newest_backup_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    await Backups(path, tmp_path / "backups").make()
    path.write_bytes(b"\0" * path.stat().st_size)
    assert len(await texts_left(path)) == ROWS


async def test_text_that_is_not_utf_8_is_kept_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path, 5)
    content = path.read_bytes()
    at = content.find(b"fact 3 about")
    overwrite(path, at, b"\xff")
    database = open_database(path, OWNERS, synchronous="FULL")
    store = SqliteStore(database)
    left = {memory.id: memory.text for memory in await store.list(Scope(), limit=10)}
    await database.aclose()
    assert set(left) == {f"m{i}" for i in range(5)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
async def test_fifty_flipped_bytes_lose_few_rows_and_never_the_store(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    rng, content = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(50):
        content[rng.randrange(len(content))] ^= 255
    path.write_bytes(bytes(content))
    assert len(await texts_left(path)) >= ROWS // 3


@pytest.mark.parametrize("seed", range(6))
async def test_an_app_survives_any_content_of_its_files(tmp_path: Path, seed: int) -> None:
    """One byte of each page is overwritten, in every file of the home."""
    settings = Settings(home=tmp_path / "home", tolerant=True, environment={})
    app = await build(settings)
    await app.memory.add_many([{"id": f"m{i}", "text": f"fact {i} of kettle"} for i in range(50)])
    await app.surfacer.surface(Cue(door="prompt", text="what of kettle 7?", session="s"))
    await app.aclose()
    rng = random.Random(seed)
    for path in sorted((tmp_path / "home").rglob("*")):
        if path.is_file() and path.stat().st_size and not path.name.endswith(".lock"):
            content = bytearray(path.read_bytes())
            for start in range(0, len(content), 4096):
                at = start + rng.randrange(min(4096, len(content) - start))
                content[at] = rng.randrange(256)
            path.write_bytes(bytes(content))
    app = await build(settings)
    await app.surfacer.surface(Cue(door="prompt", text="what of kettle 7?", session="s2"))
    await app.memory.add_many([{"id": "new", "text": "after the damage"}])
    assert await app.memory.get("new") is not None
    await app.aclose()


async def test_a_ping_finds_damage_that_no_read_has_met(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as db:
        root = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 'memory'"
        ).fetchone()[0]
    overwrite(path, (root - 1) * 4096, b"\xa5" * 64)
    database = open_database(path, OWNERS, synchronous="FULL")
    store = SqliteStore(database)
    assert (await store.ping()).ok
    await database.aclose()
    assert len(list(tmp_path.glob("memory.db.corrupt-*[0-9]"))) == 1
    assert len(await texts_left(path)) == ROWS
