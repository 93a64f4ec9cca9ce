"""SQLite files: opening, pragmas, migrations, and a thread of their own.

A `Database` is one file with two lanes, one for reading and one for writing, each a connection
on its own thread, so that a slow fsync never holds up a search and nothing ever blocks the event
loop. Several owners may share a file; each one's tables are versioned apart.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from upwell.ground.errors import StoreCorrupt, StoreError, StoreTooNew, StoreUnwritable

Migration = Callable[[sqlite3.Connection], None]
Synchronous = Literal["FULL", "NORMAL"]

BUSY_TIMEOUT_SECONDS = 8.0
_CORRUPT = ("malformed", "not a database", "disk image", "database corruption")


@dataclass(frozen=True, slots=True)
class Owner:
    """A part of the house that keeps tables: its name, and its migrations, oldest first.

    A migration is a function of the connection; its 1-based place in the list is the version it
    brings the tables to. Old ones are never edited.
    """

    name: str
    migrations: Sequence[Migration]


class Database:
    """One SQLite file. Made by `open_database`; closed by `aclose`."""

    def __init__(
        self, path: Path, reading: sqlite3.Connection, writing: sqlite3.Connection
    ) -> None:
        self.path = path
        self._reading = reading
        self._writing = writing
        self._readers = ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-read")
        self._writers = ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-write")

    async def read[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the reading lane.

        Raises:
            StoreError: SQLite failed, mapped to what it means.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._guarded, work, self._reading)

    async def write[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one `BEGIN IMMEDIATE` transaction on the writing lane.

        When this returns the change is on disk as far as the file's `synchronous` level goes.

        Raises:
            StoreError: SQLite failed; nothing was changed.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writers, self._transacted, work)

    async def data_version(self) -> int:
        """Grows when another connection, of this process or another, has changed the file."""
        return await self.read(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0]))

    async def backup_to(self, path: Path) -> None:
        """A consistent copy at `path`, made while others go on (`VACUUM INTO`)."""
        await self.read(lambda db: db.execute("VACUUM INTO ?", (str(path),)))

    async def aclose(self) -> None:
        """Finish what is under way, fold the WAL in, close."""
        loop = asyncio.get_running_loop()
        for lane, connection in ((self._readers, self._reading), (self._writers, self._writing)):
            await loop.run_in_executor(lane, connection.close)
            lane.shutdown(wait=False)

    def _guarded[T](self, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection) -> T:
        try:
            return work(db)
        except sqlite3.Error as error:
            raise from_sqlite(error, self.path) from error

    def _transacted[T](self, work: Callable[[sqlite3.Connection], T]) -> T:
        return self._guarded(lambda db: in_transaction(db, work), self._writing)


def in_transaction[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """`work(db)` inside `BEGIN IMMEDIATE` … `COMMIT`, rolled back on any error."""
    db.execute("BEGIN IMMEDIATE")
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
    if any(sign in text for sign in _CORRUPT):
        return StoreCorrupt(f"{path} is damaged: {text}", hint="run `upwell doctor`")
    if "locked" in text or "busy" in text:
        return StoreUnwritable(
            f"{path} was locked by another process for over {BUSY_TIMEOUT_SECONDS:.0f} s",
            hint="try again, or end the process that holds it",
        )
    if "full" in text:
        return StoreUnwritable(f"no room to write {path}", hint="free some disk space")
    if "readonly" in text or "unable to open" in text:
        return StoreUnwritable(
            f"cannot write {path}: {text}", hint="check its owner and permissions"
        )
    return StoreError(f"{path}: {text}")


def open_database(path: Path, owners: Sequence[Owner], *, synchronous: Synchronous) -> Database:
    """Open or make the file (0600, WAL) and bring every owner's tables up to date.

    `synchronous` FULL survives power loss once a write has returned; NORMAL survives `kill -9`.

    Raises:
        StoreTooNew: a later upwell wrote it; the file is left alone.
        StoreCorrupt: it is damaged.
        StoreUnwritable: it cannot be written.
    """
    try:
        _make_private(path)
        writing = _connect(path, synchronous)
        for owner in owners:
            migrate(writing, owner, path)
        return Database(path, _connect(path, synchronous), writing)
    except sqlite3.Error as error:
        raise from_sqlite(error, path) from error


def migrate(db: sqlite3.Connection, owner: Owner, path: Path) -> None:
    """Run the migrations of `owner` that this file has not seen, in one transaction."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS schema_version "
        "(owner TEXT PRIMARY KEY, version INTEGER NOT NULL)"
    )
    if _version(db, owner.name) == len(owner.migrations):
        return

    def bring_up(connection: sqlite3.Connection) -> None:
        version = _version(connection, owner.name)
        if version > len(owner.migrations):
            raise StoreTooNew(
                f"{path} was written by a later upwell ({owner.name} schema {version}, "
                f"this one knows {len(owner.migrations)})",
                hint="upgrade upwell, or point UPWELL_HOME at another folder",
            )
        for step in owner.migrations[version:]:
            step(connection)
        connection.execute(
            "INSERT INTO schema_version VALUES (?, ?) "
            "ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
            (owner.name, len(owner.migrations)),
        )

    in_transaction(db, bring_up)


def _version(db: sqlite3.Connection, owner: str) -> int:
    row = db.execute("SELECT version FROM schema_version WHERE owner = ?", (owner,)).fetchone()
    return int(row[0]) if row else 0


def _make_private(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreUnwritable(
            f"cannot open {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error


def _connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    db = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA secure_delete = ON")
    except BaseException:
        db.close()
        raise
    return db
