"""Daily backups: one a day, seven kept, complete and private."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from upwell.ground.errors import StoreUnwritable
from upwell.ground.sqlite.database import open_database
from upwell.ground.sqlite.salvage import KEEP, Backups
from upwell.ground.types.memory import Memory
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.testing import ManualClock

DAY = 86_400.0


async def test_one_backup_a_day_and_the_newest_seven_stay(tmp_path: Path) -> None:
    clock = ManualClock(1_775_736_000.0)
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    store = SqliteStore(database, clock=clock)
    backups = Backups(tmp_path / "memory.db", tmp_path / "backups", clock=clock)
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "memory-before-memory-v2.db").touch()
    for day in range(9):
        await store.add([Memory(text=f"day {day}")])
        made = await backups.make_if_due()
        assert made is not None
        assert await backups.make_if_due() is None
        clock.advance(DAY)
    names = [path.name for path in backups.list()]
    assert names[0] == "memory-2026-04-17.db"
    assert len(names) == 7
    assert (tmp_path / "backups" / "memory-before-memory-v2.db").exists()
    assert stat.S_IMODE(backups.list()[0].stat().st_mode) == 0o600
    with closing(sqlite3.connect(backups.list()[0])) as db:
        assert db.execute("SELECT count(*) FROM memory").fetchone() == (9,)
    await database.aclose()


async def test_a_clock_that_ran_ahead_costs_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    for day in range(1, KEEP + 2):
        (tmp_path / f"backups/memory-2099-01-{day:02}.db").parent.mkdir(exist_ok=True)
        (tmp_path / f"backups/memory-2099-01-{day:02}.db").touch()
    backups = Backups(path, tmp_path / "backups", clock=ManualClock(1_775_736_000.0))
    made = await backups.make()
    assert made in backups.list()
    assert len(backups.list()) == KEEP


async def test_a_clock_that_is_right_again_keeps_the_backups_of_the_week(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    clock = ManualClock(1_775_736_000.0)
    backups = Backups(path, tmp_path / "backups", clock=clock)
    clock.advance(365 * DAY)
    for _ in range(KEEP):
        await backups.make()
        clock.advance(DAY)
    clock.advance(-365 * DAY)
    made = [await backups.make()]
    for _ in range(KEEP - 1):
        clock.advance(DAY)
        made.append(await backups.make())
    assert list(backups.list()) == made[::-1]


async def test_what_a_killed_backup_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (x)")
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "memory-2026-04-08.db.partial").touch()
    (folder / "memory-before-memory-v3.db.partial").touch()  # another process may write it now
    made = await Backups(path, folder, clock=ManualClock(1_775_736_000.0)).make()
    names = {entry.name for entry in folder.iterdir() if entry.suffix != ".lock"}
    assert names == {made.name, "memory-before-memory-v3.db.partial"}


async def test_make_replaces_the_backup_of_today(tmp_path: Path) -> None:
    clock = ManualClock(1_775_736_000.0)
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    backups = Backups(tmp_path / "memory.db", tmp_path / "backups", clock=clock)
    await backups.make_if_due()
    await SqliteStore(database).add([Memory(text="late")])
    path = await backups.make()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT text FROM memory").fetchall() == [("late",)]
    await database.aclose()


async def test_an_unwritable_folder_is_a_clear_error(tmp_path: Path) -> None:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    (tmp_path / "backups").write_text("a file is in the way")
    with pytest.raises(StoreUnwritable):
        await Backups(tmp_path / "memory.db", tmp_path / "backups").make()
    await database.aclose()
