"""SQLite files: opening, pragmas, migrations, and threads of their own.

A `Database` is one file with two lanes, one for reading and one for writing, each a connection
on its own thread, so that a slow fsync never holds up a search and nothing that may take long is
done on the event loop. What is read in less time than the trip to a thread takes is read at once,
over a third connection that waits for no lock. Several owners may share a file; each one's tables
are versioned apart.

Many processes share a file too. A lane looks before each use whether its file is still the one at
the path: a damaged file is moved aside by whoever finds it (`ground/salvage.py`), and everybody
else follows to the new one before writing another row.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from upwell.ground.errors import StoreCorrupt, StoreError, UsageError
from upwell.ground.files import exclusively
from upwell.ground.sqlite_file import (
    Owner,
    Plan,
    Synchronous,
    finish,
    from_sqlite,
    prepare,
)

__all__ = ["Database", "Owner", "Plan", "open_database", "repair"]


class Follower:
    """A connection that follows the file when it is replaced."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self.generation = 0

    def connection(self) -> sqlite3.Connection:
        """The open connection to the file that is at the path now."""
        if not self.is_current():
            self.drop()
            self._connection = self._opened()
            self._inode = _inode(self._plan.path)
            self.generation += 1
        assert self._connection is not None
        return self._connection

    def is_current(self) -> bool:
        """Is there a connection, and is its file still the one at the path?"""
        return self._connection is not None and _inode(self._plan.path) == self._inode

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        return prepare(self._plan)

    def attempt[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """`work` on the connection.

        Raises:
            StoreError: SQLite failed.
            UsageError: a value is not valid Unicode.
        """
        try:
            return work(self.connection())
        except sqlite3.Error as error:
            raise from_sqlite(error, self._plan.path) from error
        except UnicodeEncodeError as error:
            raise UsageError(
                f"not valid Unicode: {error.object!a:.60}", hint="a lone surrogate names nothing"
            ) from error


class Lane(Follower):
    """A connection on a thread of its own."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__(plan)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{plan.path.stem}-{name}")

    async def run[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._guarded, work)

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self.drop)
        self._thread.shutdown(wait=False)

    def _guarded[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self.attempt(work)
        except StoreCorrupt:
            self.drop()
            repair(self._plan)
        return self.attempt(work)


class Glance(Follower):
    """A connection for reads of a few rows, which waits for nobody's lock."""

    def _opened(self) -> sqlite3.Connection:
        db = super()._opened()
        db.execute("PRAGMA busy_timeout = 0")
        return db


class Database:
    """One SQLite file. Made by `open_database`; closed by `aclose`."""

    def __init__(self, plan: Plan) -> None:
        self.path = plan.path
        self._reading = Lane(plan, "read")
        self._writing = Lane(plan, "write")
        self._glance = Glance(plan)

    async def read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the reading lane, again if the file had to be salvaged first.

        Raises:
            StoreError: SQLite failed, mapped to what it means.
        """
        return await self._reading.run(work)

    async def glance[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, a read that takes less than the trip to the reading lane and back, here and
        now; on the lane where the file has to be opened first, is locked or fails.

        Raises:
            StoreError: as `read`.
        """
        if not self._glance.is_current():
            await self._reading.run(lambda _: self._glance.connection())
        try:
            return self._glance.attempt(work)
        except StoreError:
            return await self.read(work)

    async def write[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one `BEGIN IMMEDIATE` transaction on the writing lane.

        When this returns the change is on disk as far as the file's `synchronous` level goes.

        Raises:
            StoreError: SQLite failed; nothing was changed.
        """
        return await self._writing.run(lambda db: self._transacted(db, work))

    async def data_version(self) -> tuple[int, int]:
        """Differs from last time when another connection, of this process or another, has
        changed the file."""

        def look(db: sqlite3.Connection) -> tuple[int, int]:
            return self._reading.generation, int(db.execute("PRAGMA data_version").fetchone()[0])

        return await self.read(look)

    async def checkpoint(self) -> None:
        """Fold the WAL into the file and empty it, as far as readers allow."""
        await self._writing.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    async def aclose(self) -> None:
        """Finish what is under way, fold the WAL in, close."""
        await self._reading.close()
        await self._writing.close()
        self._glance.drop()

    def _transacted[T](self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        """Inside the transaction nobody can replace the file: look once more whether it is ours."""
        while True:
            db.execute("BEGIN IMMEDIATE")
            if self._writing.is_current():
                return finish(db, work)
            db.execute("ROLLBACK")
            db = self._writing.connection()


def open_database(path: Path, owners: Sequence[Owner], *, synchronous: Synchronous) -> Database:
    """Open or make the file (0600, WAL) and bring every owner's tables up to date.

    `synchronous` FULL survives power loss once a write has returned; NORMAL survives `kill -9`.
    A damaged file is moved aside and what can be read of it brought over.

    Raises:
        StoreTooNew: a later upwell wrote it; the file is left alone.
        StoreUnwritable: it cannot be written.
    """
    plan = Plan(path, tuple(owners), synchronous)
    try:
        try:
            prepare(plan).close()
        except StoreCorrupt:
            repair(plan)
            prepare(plan).close()
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error
    return Database(plan)


def repair(plan: Plan) -> None:
    """Move the file aside if it is damaged, and bring over what can be read.

    Raises:
        StoreError: it cannot be written.
    """
    from upwell.ground.salvage import replace_damaged

    try:
        with exclusively(plan.path):
            replace_damaged(plan)
    except sqlite3.Error as error:
        raise from_sqlite(error, plan.path) from error


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
