"""SQLite files: opening, pragmas, migrations, and threads of their own.

A `Database` is one file with two lanes, one for reading and one for writing, each a connection
on its own thread, so that a slow fsync never holds up a search and nothing ever blocks the event
loop. Several owners may share a file; each one's tables are versioned apart.

Many processes share a file too. A lane looks before each use whether its file is still the one at
the path: a damaged file is moved aside by whoever finds it (`ground/salvage.py`), and everybody
else follows to the new one before writing another row.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from upwell.ground.errors import StoreCorrupt, StoreError, StoreTooNew, StoreUnwritable, UsageError

Migration = Callable[[sqlite3.Connection], None]
Salvage = Callable[[sqlite3.Connection, sqlite3.Connection], int]
Synchronous = Literal["FULL", "NORMAL"]

BUSY_TIMEOUT_SECONDS = 8.0
CORRUPT = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_LOCKED = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED"})
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR", "SQLITE_TOOBIG"})
_FORBIDDEN = frozenset({"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"})


@dataclass(frozen=True, slots=True)
class Owner:
    """A part of the house that keeps tables: its name, and its migrations, oldest first.

    A migration is a function of the connection; its 1-based place in the list is the version it
    brings the tables to. Old ones are never edited. `salvage(damaged, fresh)` brings over what
    can still be read and returns how many rows; without one, tables are copied row by row.
    """

    name: str
    migrations: Sequence[Migration]
    salvage: Salvage | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How a file is opened: whose tables it holds, and how safely it is written."""

    path: Path
    owners: Sequence[Owner]
    synchronous: Synchronous


class Lane:
    """A connection on a thread of its own, which follows the file when it is replaced."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"{plan.path.stem}-{name}")
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self.generation = 0

    async def run[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._guarded, work)

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self.drop)
        self._thread.shutdown(wait=False)

    def connection(self) -> sqlite3.Connection:
        """The open connection to the file that is at the path now."""
        if self._connection is None or not self.is_current():
            self.drop()
            self._connection = prepare(self._plan)
            self._inode = _inode(self._plan.path)
            self.generation += 1
        return self._connection

    def is_current(self) -> bool:
        return _inode(self._plan.path) == self._inode

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _guarded[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return self._attempt(work)
        except StoreCorrupt:
            self.drop()
            repair(self._plan)
        return self._attempt(work)

    def _attempt[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self.connection())
        except sqlite3.Error as error:
            raise from_sqlite(error, self._plan.path) from error
        except UnicodeEncodeError as error:
            raise UsageError(
                f"not valid Unicode: {error.object!a:.60}", hint="a lone surrogate names nothing"
            ) from error


class Database:
    """One SQLite file. Made by `open_database`; closed by `aclose`."""

    def __init__(self, plan: Plan) -> None:
        self.path = plan.path
        self._reading = Lane(plan, "read")
        self._writing = Lane(plan, "write")

    async def read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the reading lane, again if the file had to be salvaged first.

        Raises:
            StoreError: SQLite failed, mapped to what it means.
        """
        return await self._reading.run(work)

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

    def _transacted[T](self, db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        """Inside the transaction nobody can replace the file: look once more whether it is ours."""
        while True:
            db.execute("BEGIN IMMEDIATE")
            if self._writing.is_current():
                return _finish(db, work)
            db.execute("ROLLBACK")
            db = self._writing.connection()


def in_transaction[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """`work(db)` inside `BEGIN IMMEDIATE` … `COMMIT`, rolled back on any error."""
    db.execute("BEGIN IMMEDIATE")
    return _finish(db, work)


def _finish[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def from_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    """What an SQLite error means to the user."""
    text = str(error)
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in CORRUPT:
        return StoreCorrupt(f"{path} is damaged: {text}", hint="run `upwell doctor`")
    if name in _LOCKED:
        return StoreUnwritable(
            f"{path} was locked by another process for over {BUSY_TIMEOUT_SECONDS:.0f} s",
            hint="try again, or end the process that holds it",
        )
    if name in _NO_ROOM:
        return StoreUnwritable(
            f"no room to write {path}, or the disk failed: {text}", hint="free some disk space"
        )
    if name in _FORBIDDEN:
        return StoreUnwritable(
            f"cannot write {path}: {text}", hint="check its owner and permissions"
        )
    return StoreError(f"{path}: {text}")


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


def prepare(plan: Plan) -> sqlite3.Connection:
    """A connection to the file, made and migrated where need be.

    Raises:
        StoreError: as `open_database`, and StoreCorrupt.
    """
    try:
        _make_private(plan.path)
        db = connect(plan.path, plan.synchronous)
    except sqlite3.Error as error:
        raise from_sqlite(error, plan.path) from error
    try:
        if any(_version(db, owner.name) != len(owner.migrations) for owner in plan.owners):
            with exclusively(plan.path):
                for owner in plan.owners:
                    migrate(db, owner, plan.path)
    except sqlite3.Error as error:
        db.close()
        raise from_sqlite(error, plan.path) from error
    except BaseException:
        db.close()
        raise
    return db


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


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """The lock under which a file's tables are changed or the file itself is replaced.

    Raises:
        StoreUnwritable: another process has held it for too long, or it cannot be made.
    """
    lock = FileLock(f"{path}.lock", timeout=BUSY_TIMEOUT_SECONDS, mode=0o600)
    try:
        lock.acquire()
    except Timeout as error:
        raise StoreUnwritable(
            f"{lock.lock_file} is held by another process",
            hint="it may be repairing the database; try again in a minute",
        ) from error
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {lock.lock_file}: {error.strerror}",
            hint="check the folder's owner and permissions",
        ) from error
    try:
        yield
    finally:
        lock.release()


def migrate(db: sqlite3.Connection, owner: Owner, path: Path) -> None:
    """Run the migrations of `owner` that this file has not seen, in one transaction. A file that
    holds something already is copied to `backups/` beside it first.

    Raises:
        StoreTooNew: a later upwell wrote these tables.
    """
    version = _version(db, owner.name)
    if version > len(owner.migrations):
        raise StoreTooNew(
            f"{path} was written by a later upwell ({owner.name} schema {version}, "
            f"this one knows {len(owner.migrations)})",
            hint="upgrade upwell, or point UPWELL_HOME at another folder",
        )
    if version == len(owner.migrations):
        return
    if version:
        _copy_before(db, owner, version, path)

    def bring_up(connection: sqlite3.Connection) -> None:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(owner TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )
        for step in owner.migrations[_version(connection, owner.name) :]:
            step(connection)
        connection.execute(
            "INSERT INTO schema_version VALUES (?, ?) "
            "ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
            (owner.name, len(owner.migrations)),
        )

    in_transaction(db, bring_up)


def _copy_before(db: sqlite3.Connection, owner: Owner, version: int, path: Path) -> None:
    folder = path.parent / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    copy = folder / f"{path.stem}-before-{owner.name}-v{version + 1}.db"
    if not copy.exists():
        vacuum_into(db, copy)


def vacuum_into(db: sqlite3.Connection, path: Path) -> None:
    """A consistent copy at `path` (0600), whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_RDWR, 0o600))
    try:
        db.execute("VACUUM INTO ?", (str(partial),))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _version(db: sqlite3.Connection, owner: str) -> int:
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone()
    if not known:
        return 0
    row = db.execute("SELECT version FROM schema_version WHERE owner = ?", (owner,)).fetchone()
    return int(row[0]) if row else 0


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        owner = path.stat().st_uid
    except OSError as error:
        raise StoreUnwritable(
            f"cannot open {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error
    if hasattr(os, "getuid") and owner != os.getuid():
        raise StoreUnwritable(
            f"{path} belongs to another user", hint="set UPWELL_HOME to a folder of your own"
        )


def connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """A connection with the house's pragmas."""
    db = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            with exclusively(path):
                db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
    except BaseException:
        db.close()
        raise
    return db
