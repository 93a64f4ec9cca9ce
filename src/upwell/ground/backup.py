"""Daily copies of a database, made while others go on."""

from datetime import UTC, datetime
from pathlib import Path

from upwell.ground.db import Database
from upwell.ground.errors import StoreUnwritable
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.sqlite_file import vacuum_into

KEPT = 7


async def back_up_daily(database: Database, folder: Path, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Copy the database to `folder` unless there is a copy of today (UTC); keep the newest seven.
    Gives whether a copy was made.

    Raises:
        StoreError: no copy could be made; older ones are untouched.
    """
    stem = database.path.stem
    today = datetime.fromtimestamp(clock.now(), UTC).date().isoformat()
    copy = folder / f"{stem}-{today}.db"
    if copy.exists():
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await database.read(lambda db: vacuum_into(db, copy))
        for old in sorted(folder.glob(f"{stem}-[0-9]*.db"))[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError as error:
        raise StoreUnwritable(
            f"no backup could be made in {folder}: {error.strerror}", hint="free some disk space"
        ) from error
    return True
