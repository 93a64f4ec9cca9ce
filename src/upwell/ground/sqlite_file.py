"""One SQLite file: making it, opening it, its pragmas, its migrations, and what its errors mean.

`ground/db.py` puts threads around it; `ground/salvage.py` replaces it when it is damaged.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from upwell.ground.errors import StoreCorrupt, StoreError, StoreTooNew, StoreUnwritable
from upwell.ground.files import exclusively

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


def anew(damaged: sqlite3.Connection, fresh: sqlite3.Connection) -> int:
    """The salvage of tables that are made again from something else: nothing is brought over."""
    return 0


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


def in_transaction[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """`work(db)` inside `BEGIN IMMEDIATE` … `COMMIT`, rolled back on any error."""
    db.execute("BEGIN IMMEDIATE")
    return finish(db, work)


def finish[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """`work(db)`, then `COMMIT`; rolled back on any error."""
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


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


def _make_private(path: Path) -> None:
    """Make the file when there is none. One that exists is never opened and closed here: that
    would drop the locks that this process's other connections hold on it (POSIX locks belong to
    the process; sqlite.org/howtocorrupt.html §2.2)."""
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        info = path.stat()
    except OSError as error:
        raise StoreUnwritable(
            f"cannot open {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error
    if not stat.S_ISREG(info.st_mode):
        raise StoreUnwritable(f"{path} is no file", hint="move it away")
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
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
