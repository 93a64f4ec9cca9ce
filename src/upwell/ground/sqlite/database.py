"""A SQLite database with two threads, one for reading and one for writing.

Slow writes therefore never delay searches. Reading a few rows takes less time than switching to
another thread, so such reads run on the event loop, on a third connection that never waits for a
lock. Several components may own tables in one file. Each owner's tables have their own version.

Several processes may also share a file. A process that finds damage moves the file aside
(`ground/sqlite/salvage.py`). Before each use, a connection checks whether the path still leads to
its file, so all processes switch to the new file before they write another row.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from upwell.ground.errors import (
    StoreCorrupt,
    StoreError,
    StoreUnwritable,
    UsageError,
)
from upwell.ground.files import exclusively
from upwell.ground.sqlite.file import (
    OpenPlan,
    Owner,
    Synchronous,
    finish,
    from_failure,
    from_sqlite,
    in_transaction,
    prepare,
    refuse_later,
    version,
)
from upwell.ground.trace import LOG

__all__ = ["Database", "DatabaseInMemory", "OpenPlan", "Owner", "open_database", "repair"]


CHECK_SECONDS = 1.0
"""How long a check of the whole file may take. After that, the rest is not checked."""
_STEPS_PER_LOOK = 10_000
"""The number of SQLite instructions between two checks of the time."""


class Follower:
    """A connection that is reopened when its file has been replaced. The current file is the one to
    which the path leads now."""

    def __init__(self, plan: OpenPlan) -> None:
        self.plan = plan
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self.generation = 0

    def connection(self) -> sqlite3.Connection:
        """Return an open connection to the current file."""
        if not self.is_current():
            self.connect()
        assert self._connection is not None
        return self._connection

    def connect(self) -> None:
        """Open the current file, and close the previous connection."""
        self.drop()
        self.use(prepare(self.plan), _inode(self.plan.path))

    def use(self, connection: sqlite3.Connection, inode: int) -> None:
        """Replace the connection. `inode` identifies the file of the new connection."""
        self.drop()
        self._connection, self._inode = connection, inode
        self.generation += 1

    def is_current(self) -> bool:
        """Return whether there is a connection to the current file."""
        return self._connection is not None and _inode(self.plan.path) == self._inode

    def owns(self, connection: sqlite3.Connection) -> bool:
        """Return whether this is the current connection."""
        return connection is self._connection

    def reopen(self, plan: OpenPlan) -> None:
        """Reopen the connection with another plan on the next use."""
        self.plan = plan
        self._inode = 0

    def drop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def attempt[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection.

        Raises:
            StoreError: SQLite failed.
            UsageError: a value is not valid Unicode.
        """
        with _converted(self.plan.path):
            return work(self.connection())


class Lane(Follower):
    """A connection on its own thread."""

    def __init__(self, plan: OpenPlan, name: str) -> None:
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
            repair(self.plan)
        except StoreError:
            _refuse_later(self.plan)
            raise
        return self.attempt(work)


class InlineRead(Follower):
    """A connection for reading a few rows on the event loop. The connection never waits for a lock.
    A thread opens it, but only the event loop replaces it, because a thread could close the old
    connection during a read.
    """

    def connection(self) -> sqlite3.Connection:
        """Return the connection without a check, because `Database.inline_read()` has just checked
        it.
        """
        assert self._connection is not None
        return self._connection

    def opened(self) -> tuple[sqlite3.Connection, int]:
        """Return a new connection to the current file, and the file's inode."""
        db = prepare(self.plan)
        db.execute("PRAGMA busy_timeout = 0")
        return db, _inode(self.plan.path)


@dataclass(frozen=True, slots=True)
class _Pending[T]:
    work: Callable[[sqlite3.Connection], T]
    result: asyncio.Future[T]

    def settle(self, value: T) -> None:
        if not self.result.done():  # the caller may have been cancelled
            self.result.set_result(value)

    def fail(self, error: BaseException) -> None:
        if not self.result.done():
            self.result.set_exception(error)


class Database:
    """One SQLite file, opened by `open_database()` and closed by `aclose()`.

    Its methods raise StoreError if SQLite or a repair fails, and UsageError if a value is not valid
    Unicode. A write that raises has changed nothing.
    """

    def __init__(self, plan: OpenPlan, obstacle: StoreUnwritable | None = None) -> None:
        self.path = plan.path
        self.obstacle = obstacle
        self._reading = Lane(plan, "read")
        self._writing = Lane(plan, "write")
        self._inline_read = InlineRead(plan)
        self._pending: list[_Pending[Any]] = []
        self._committing: asyncio.Task[None] | None = None

    async def read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the reading thread. If the file seems damaged, repair it if necessary and
        run `work` again."""
        return await self._reading.run(work)

    async def inline_read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the event loop. It must be a read that takes less time than switching to
        the reading thread.

        If the file is locked or the read fails, `work` runs on the reading thread.
        """
        if not self._inline_read.is_current():
            self._inline_read.use(*await self._reading.run(lambda _: self._inline_read.opened()))
        try:
            return self._inline_read.attempt(work)
        except StoreError:
            return await self.read(work)

    async def look_for_damage(self) -> None:
        """Check the structure of the whole file, for `CHECK_SECONDS` at most, and repair damage."""
        # The first check runs on another thread, so that no search waits while a sound file is
        # checked.
        if await asyncio.to_thread(_flaw_of_file, self.path):
            await self._reading.run(self._report_flaw)

    async def write[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one `BEGIN IMMEDIATE` transaction on the writing thread.

        The change is as durable as the file's `synchronous` level promises. A file that was opened
        read-only is opened for writing as soon as possible.
        """
        if self.obstacle:
            await asyncio.to_thread(self._open_for_writing)
        return await self._writing.run(lambda db: self._transacted(db, work))

    async def write_grouped[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Like `write()`, but all writes that arrive while an earlier write is running share one
        transaction, because switching to the writing thread costs more than a small write. `work`
        may run more than once."""
        pending = _Pending(work, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_pending())
        result: T = await pending.result
        return result

    async def _commit_pending(self) -> None:
        try:
            while self._pending:
                group, self._pending = self._pending, []
                await self._commit(group)
        finally:
            # There must be no await between the last check of `_pending` and this line, because a
            # write that arrives in between would wait forever.
            self._committing = None

    async def _commit(self, group: Sequence[_Pending[Any]]) -> None:
        try:
            values = await self.write(lambda db: [pending.work(db) for pending in group])
        except Exception:
            # A single write may be the cause, so each write now gets a transaction of its own.
            for pending in group:
                try:
                    pending.settle(await self.write(pending.work))
                except Exception as error:
                    pending.fail(error)
            return
        for pending, value in zip(group, values, strict=True):
            pending.settle(value)

    def _open_for_writing(self) -> None:
        writable = replace(self._writing.plan, is_read_only=False)
        prepare(writable).close()
        for follower in (self._reading, self._writing, self._inline_read):
            follower.reopen(writable)
        self.obstacle = None

    async def data_version(self) -> tuple[int, int]:
        """Return a value that changes when another connection or process changes the file."""

        def look(db: sqlite3.Connection) -> tuple[int, int]:
            # Versions from two connections cannot be compared, so the reading thread's generations
            # are negative.
            generation = self._inline_read.generation
            if not self._inline_read.owns(db):
                generation = -self._reading.generation
            return generation, int(db.execute("PRAGMA data_version").fetchone()[0])

        return await self.inline_read(look)

    async def checkpoint(self) -> None:
        """Copy the WAL into the file and truncate the WAL, as far as readers allow."""
        await self._writing.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())

    async def aclose(self) -> None:
        """Finish pending work and close the connections."""
        if self._committing is not None:
            await self._committing
        await self._reading.close()
        await self._writing.close()
        self._inline_read.drop()

    def _report_flaw(self, db: sqlite3.Connection) -> None:
        if flaw := _flaw(db):
            raise StoreCorrupt(f"{self.path} is damaged: {flaw}", hint="run `upwell doctor`")

    def _transacted[T](self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        while True:
            db.execute("BEGIN IMMEDIATE")
            # No process can replace the file during a transaction, so this check is final.
            if self._writing.is_current():
                return finish(db, work)
            db.execute("ROLLBACK")
            db = self._writing.connection()


class DatabaseInMemory:
    """Tables in this process's memory, with those methods of `Database` that work on them."""

    def __init__(self, owners: Sequence[Owner]) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for owner in owners:
            for migration in owner.migrations:
                migration(self.connection)

    async def read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _converted(Path("the memory")):
            return work(self.connection)

    async def write[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        with _converted(Path("the memory")):
            return in_transaction(self.connection, work)

    inline_read = read
    write_grouped = write

    async def look_for_damage(self) -> None:
        """Do nothing, because no other program can damage the tables."""


@contextmanager
def _converted(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error
    except (UnicodeDecodeError, MemoryError) as error:
        raise from_failure(error, path) from error
    except UnicodeEncodeError as error:
        raise UsageError(
            f"not valid Unicode: {error.object!a:.60}", hint="remove lone surrogates"
        ) from error


def _flaw_of_file(path: Path) -> str:
    try:
        with closing(_read_only(path)) as db:
            return _flaw(db)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return str(error)


def _flaw(db: sqlite3.Connection) -> str:
    """Return the first flaw in the structure of a file, or "" if no flaw was found in time."""
    deadline = time.monotonic() + CHECK_SECONDS
    db.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_PER_LOOK)
    try:
        result = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return ""
    finally:
        db.set_progress_handler(None, 0)
    return "" if result == "ok" else result


def open_database(path: Path, owners: Sequence[Owner], *, synchronous: Synchronous) -> Database:
    """Open or create the file (mode 0600, WAL) and migrate the tables of every owner.

    With `synchronous` FULL, a completed write survives a power loss. With NORMAL, it survives a
    `kill -9` but not a power loss. A damaged file is moved aside, and its readable rows are copied
    to a new file. A file that cannot be written is opened read-only, and writes fail until it
    becomes writable.

    Raises:
        StoreTooNew: a later version of upwell wrote the file. The file is not changed.
        StoreUnwritable: the file can be opened neither for writing nor read-only, or belongs to
            another user.
    """
    plan = OpenPlan(path, tuple(owners), synchronous)
    try:
        prepare(plan).close()
    except StoreCorrupt:
        repair(plan)
        prepare(plan).close()
    except StoreUnwritable as error:
        return _open_read_only(plan, error)
    return Database(plan)


def _open_read_only(plan: OpenPlan, obstacle: StoreUnwritable) -> Database:
    reading = replace(plan, is_read_only=True)
    try:
        if not plan.path.is_file() or plan.path.stat().st_uid != os.getuid():
            raise obstacle
        prepare(reading).close()
    except (StoreError, OSError) as error:
        raise obstacle from error
    LOG.warning("opened a database read-only: %s", obstacle)
    return Database(reading, obstacle)


def repair(plan: OpenPlan) -> None:
    """Replace the file if it is damaged. The rows that can be read are kept.

    Raises:
        StoreTooNew: a later version of upwell has changed the tables since this process opened
            them. The file is not changed.
        StoreError: the new file cannot be written, or the file cannot be locked.
    """
    from upwell.ground.sqlite.salvage import replace_damaged

    try:
        with exclusively(plan.path):
            _refuse_later(plan)
            replace_damaged(plan)
    except Exception as error:
        raise from_failure(error, plan.path) from error


def _refuse_later(plan: OpenPlan) -> None:
    """Raise StoreTooNew if a later version of upwell has changed the tables."""
    with suppress(sqlite3.Error, ValueError), closing(_read_only(plan.path)) as db:
        for owner in plan.owners:
            refuse_later(owner, version(db, owner.name), plan.path, "restart this process")


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
