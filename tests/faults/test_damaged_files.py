"""Damage of every part of a database file: the file is moved aside, and the rows that SQLite can
read are kept. For the others, there is the backup.
"""

import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from upwell.app import Settings, build
from upwell.ground.errors import StoreUnwritable
from upwell.ground.sqlite.database import open_database
from upwell.ground.sqlite.file import DamagedFile
from upwell.ground.sqlite.salvage import Backups, last_salvage
from upwell.ground.types.cue import Cue, Skip
from upwell.ground.types.memory import Memory, Scope
from upwell.learn.feedback import OWNER as RATINGS
from upwell.memory.records import NO_PROJECT
from upwell.memory.sources import OWNER as SOURCES
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


@pytest.mark.parametrize("size", [100, 4096])
async def test_without_its_header_a_file_is_replaced_by_the_newest_backup(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    await Backups(path, tmp_path / "backups").make()
    overwrite(path, 0, b"\xa5" * size)
    assert len(await texts_left(path)) == ROWS


async def test_rows_that_cannot_be_read_come_from_the_backup_and_deleted_ones_do_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    await Backups(path, tmp_path / "backups").make()
    database = open_database(path, OWNERS, synchronous="FULL")
    store = SqliteStore(database)
    await store.add([Memory(text="since the backup", id="since")])
    await store.delete("m7")
    await database.aclose()
    for page in pages_of(path, "memory")[5:25:5]:
        overwrite(path, page * 4096, b"\xa5" * 4096)
    assert await texts_left(path) == {*(f"m{i}" for i in range(ROWS) if i != 7), "since"}
    salvage = last_salvage(path)
    assert salvage is not None
    assert not salvage.is_complete
    assert salvage.restored > 0


@pytest.mark.parametrize("bad", [[0], [-1], [3, 9], [0, 4, -1], range(2, 60, 4)])
async def test_every_row_on_an_intact_page_is_kept(tmp_path: Path, bad: Sequence[int]) -> None:
    """Without a backup. The memories of three projects have numbers that are far apart."""
    path = tmp_path / "memory.db"
    database = open_database(path, OWNERS, synchronous="FULL")
    for project in ("/a", "/b", None):
        await SqliteStore(database).add(
            [
                Memory(text=f"fact {i} " + "steam " * 60, id=f"{project}{i}", project=project)
                for i in range(ROWS)
            ]
        )
    await database.aclose()
    leaves = pages_of(path, "memory")
    lost = [leaves[index] * 4096 for index in bad]
    for at in lost:
        overwrite(path, at, b"\xa5" * 4096)
    readable = set()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        for id in (f"{project}{i}" for project in ("/a", "/b", None) for i in range(ROWS)):
            with suppress(sqlite3.DatabaseError):
                row = "SELECT id, text FROM memory WHERE tenant = 'default' AND id = ?"
                readable.add(db.execute(row, (id,)).fetchone()[0])
    assert 0 < len(readable) < 3 * ROWS
    assert await texts_left(path) == readable


async def test_a_full_disk_ends_the_copying_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    database = open_database(tmp_path / "fresh.db", OWNERS, synchronous="NORMAL")
    await database.aclose()
    with (
        closing(sqlite3.connect(path)) as damaged,
        closing(sqlite3.connect(tmp_path / "fresh.db", isolation_level=None)) as fresh,
    ):
        pages = fresh.execute("PRAGMA page_count").fetchone()[0]
        fresh.execute(f"PRAGMA max_page_count = {pages + 2}")
        fresh.execute("BEGIN IMMEDIATE")
        assert OWNER.salvage is not None
        with pytest.raises(StoreUnwritable, match="full"):
            OWNER.salvage(DamagedFile(damaged), fresh)


async def test_a_backup_that_cannot_be_read_gives_way_to_an_earlier_one(tmp_path: Path) -> None:
    path, folder = tmp_path / "memory.db", tmp_path / "backups"
    await filled(path)
    made = await Backups(path, folder).make()
    made.rename(folder / "memory-2026-01-01.db")
    (folder / "memory-2026-01-02.db").write_bytes(b"a letter" * 5_000)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert len(await texts_left(path)) == ROWS
    salvage = last_salvage(path)
    assert salvage is not None
    assert salvage.backup == "memory-2026-01-01.db"


def pages_of(path: Path, table: str) -> list[int]:
    """The numbers of a table's leaf pages, counted from 0, in the order of its rows."""
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = path.read_bytes()
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()

    def leaves(number: int) -> list[int]:
        page = content[(number - 1) * 4096 : number * 4096]
        if page[0] == 0x0D:
            return [number - 1]
        count = int.from_bytes(page[3:5], "big")
        cells = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(count)]
        children = [int.from_bytes(page[cell : cell + 4], "big") for cell in cells]
        return [
            leaf
            for child in [*children, int.from_bytes(page[8:12], "big")]
            for leaf in leaves(child)
        ]

    return leaves(root)


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
async def test_fifty_flipped_bytes_lose_hardly_a_row_of_the_backup(
    tmp_path: Path, seed: int
) -> None:
    path = tmp_path / "memory.db"
    await filled(path)
    await Backups(path, tmp_path / "backups").make()
    rng, content = random.Random(seed), bytearray(path.read_bytes())
    for _ in range(50):
        content[rng.randrange(len(content))] ^= 255
    path.write_bytes(bytes(content))
    assert len(await texts_left(path)) >= ROWS - 2


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


async def test_a_memory_whose_project_cannot_be_read_belongs_to_none(tmp_path: Path) -> None:
    """It does not become a memory for every project, because another project must not see it."""
    settings = Settings(home=tmp_path / "home", environment={})
    app = await build(settings)
    await app.memory.add_many([{"id": "m", "text": "the kettle fact", "project": "/srv/secret"}])
    await app.aclose()
    with closing(sqlite3.connect(tmp_path / "home" / "memory.db")) as db:
        db.execute("UPDATE memory SET project = x'ff'")
        db.commit()
    app = await build(settings)
    memory = await app.memory.get("m")
    assert memory is None or memory.project == NO_PROJECT
    cue = Cue(door="ask", text="the kettle fact", cwd=str(tmp_path))
    assert isinstance(await app.surfacer.surface(cue), Skip)
    await app.aclose()
