import sqlite3

from upwell.ground.backup import KEPT, back_up_daily
from upwell.ground.db import Owner, open_database
from upwell.testing import ManualClock

OWNER = Owner("notes", [lambda db: db.execute("CREATE TABLE note (text TEXT)")])


async def test_one_copy_a_day_and_the_newest_seven(tmp_path):
    clock = ManualClock(1_790_000_000.0)
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    folder = tmp_path / "backups"
    try:
        for day in range(KEPT + 3):
            await database.write(
                lambda db, day=day: db.execute("INSERT INTO note VALUES (?)", (day,))
            )
            assert await back_up_daily(database, folder, clock)
            assert not await back_up_daily(database, folder, clock)
            clock.advance(86_400)
    finally:
        await database.aclose()
    copies = sorted(folder.iterdir())
    assert len(copies) == KEPT
    newest = sqlite3.connect(copies[-1])
    assert newest.execute("SELECT count(*) FROM note").fetchone() == (KEPT + 3,)
    newest.close()
    assert copies[-1].stat().st_mode & 0o077 == 0
