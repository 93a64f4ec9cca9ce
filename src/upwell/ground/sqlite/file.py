"""Open one SQLite file: create it, set pragmas, run migrations, and convert errors. From a damaged
file, read the rows that SQLite can still read.

`ground/sqlite/database.py` adds threads, and `ground/sqlite/salvage.py` replaces damaged files.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from upwell.ground.errors import StoreCorrupt, StoreError, StoreTooNew, StoreTooOld, StoreUnwritable
from upwell.ground.files import exclusively

UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)
"""The errors that the `sqlite3` module raises because of damage."""
MAX_FAILURES = 20_000
"""How many reads of one table may fail before the rest of its rows is given up."""
SINGLE_STEPS = 1_000
"""How many keys after an unreadable row are tried one by one."""
_MAX_KEY = 2**63 - 1


class DamagedFile:
    """The rows of a file that may be damaged. `is_complete` becomes False if one of the tables read
    so far has unreadable rows."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.is_complete = True
        db.text_factory = lambda text: text.decode("utf-8", "replace")
        with suppress(*UNREADABLE):
            # SQLite then reads truncated files and what is intact of a damaged schema.
            db.execute("PRAGMA writable_schema = ON")

    def columns(self, table: str) -> list[str]:
        """Return the names of the table's columns; none if the table cannot be read."""
        try:
            rows = self.db.execute(f"SELECT * FROM {table} LIMIT 0").description
        except UNREADABLE:
            self.is_complete = False
            return []
        return [row[0] for row in rows]

    def rows(self, table: str, columns: str, key: str = "rowid") -> Iterator[tuple[Any, ...]]:
        """Yield all readable rows of a table, each as the integer key followed by the columns.

        The table is read forwards. After an unreadable row, the keys that follow are tried one by
        one, and then at growing distances, so the rows behind the damage are read backwards, too. A
        row may come twice."""
        if not self.columns(table):
            return
        select = f"SELECT {key}, {columns} FROM {table} WHERE {key}"
        first_failure = yield from self._rows_from(select, key, 0, "ASC")
        if first_failure is not None:
            self.is_complete = False
            yield from self._rows_from(select, key, first_failure, "DESC")

    def _rows_from(
        self, select: str, key: str, floor: int, order: Literal["ASC", "DESC"]
    ) -> Generator[tuple[Any, ...], None, int | None]:
        """Yield the rows with keys of at least `floor`. Returns the first key that failed."""
        at, sign, limit = (floor, 1, ">=") if order == "ASC" else (_MAX_KEY, -1, "<=")
        ordered = f"{select} {limit} ? AND {key} >= ? ORDER BY {key} {order}"
        failures, consecutive, first_failure = 0, 0, None
        while floor <= at <= _MAX_KEY and failures < MAX_FAILURES:
            try:
                for row in self.db.execute(ordered, (at, floor)):
                    at, consecutive = row[0] + sign, 0
                    yield row
                break
            except UNREADABLE:
                first_failure = at if first_failure is None else first_failure
            # `sqlite3` reads ahead by one row, so the row before the damage has failed with it.
            failures, consecutive = failures + 1, consecutive + 1
            with suppress(*UNREADABLE):
                for row in self.db.execute(f"{select} = ?", (at,)).fetchall():
                    consecutive = 0
                    yield row
            at += sign * 2 ** max(0, consecutive - SINGLE_STEPS)
        return first_failure

    def rows_without_rowid(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows before the first unreadable one, and those after the last. A row may come
        twice."""
        key = [row[1] for row in self.db.execute(f"PRAGMA table_info({table})") if row[5]]
        for order in ("ASC", "DESC"):
            ordered = ", ".join(f'"{column}" {order}' for column in key)
            query, count = f"SELECT {columns} FROM {table} ORDER BY {ordered}", 0
            try:
                for row in self.db.execute(query):
                    count += 1
                    yield row
                return
            except UNREADABLE:
                self.is_complete = False
            with suppress(*UNREADABLE):
                yield from self.db.execute(f"{query} LIMIT 1 OFFSET {count}").fetchall()


Migration = Callable[[sqlite3.Connection], None]
Salvage = Callable[[DamagedFile, sqlite3.Connection], int]
Synchronous = Literal["FULL", "NORMAL"]

BUSY_TIMEOUT_SECONDS = 8.0
MAX_VERSION = 1000
"""A schema version above this number means damage, not a later version of upwell."""
CORRUPT = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_SIGNS_OF_DAMAGE = (
    "Could not decode to UTF-8",
    "no such table: ",
    "no such column: ",
    "no such module: ",
    "unsupported file format",
    "invalid fts5 file format",
)
"""The beginnings of error messages that mean damage but have no specific error code. A missing
table or column means damage, because upwell's statements use only those that the migrations create.
"""
_CHECK_OWNER = "check its owner and permissions"
_LOCKED = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED"})
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR", "SQLITE_TOOBIG"})
_FORBIDDEN = frozenset({"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"})


class Owner(Struct, frozen=True):
    """A component that owns tables in a file.

    `name`: the owner's key in the `schema_version` table. `migrations`: oldest first; the 1-based
    position of a migration is the version that it creates. Released migrations are never edited.
    `salvage(source, fresh)`: copies the readable rows that `fresh` lacks and returns their number;
    without it, tables are copied row by row. It may be called again with a backup as the source.
    `expendable`: whether rows may be lost. If so, the file is not copied before
    a migration. `oldest`: files with tables of an earlier version are refused.
    """

    name: str
    migrations: Sequence[Migration]
    salvage: Salvage | None = None
    expendable: bool = False
    oldest: int = 1


class OpenPlan(Struct, frozen=True):
    """How to open a file.

    `is_read_only`: whether the file is only read and never created, because it cannot be written.
    """

    path: Path
    owners: Sequence[Owner]
    synchronous: Synchronous
    is_read_only: bool = False


def recreate(source: DamagedFile, fresh: sqlite3.Connection) -> int:
    """Salvage nothing, because the tables are rebuilt from other data."""
    return 0


def from_failure(error: Exception, path: Path) -> StoreError:
    """Convert any exception raised while opening a file or preparing its tables.

    The `sqlite3` module does not only raise `sqlite3.Error`. A schema or SQLite message that is not
    valid UTF-8 causes a `UnicodeDecodeError`, and an absurd length causes a `MemoryError`. A
    failure is attributed to damage if no other cause is known.
    """
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        return StoreUnwritable(f"cannot write {path}: {error.strerror}", hint=_CHECK_OWNER)
    converted = from_sqlite(error, path) if isinstance(error, sqlite3.Error) else None
    if converted is not None and type(converted) is not StoreError:
        return converted
    return StoreCorrupt(f"{path} is damaged: {error!a:.200}", hint="run `upwell doctor`")


def from_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    """Convert an SQLite error, with a hint if the cause is known."""
    text = str(error)
    name = "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])
    if name in CORRUPT or text.startswith(_SIGNS_OF_DAMAGE):
        return StoreCorrupt(f"{path} is damaged: {text}", hint="run `upwell doctor`")
    if name in _LOCKED:
        return StoreUnwritable(
            f"{path} was locked by another process for over {BUSY_TIMEOUT_SECONDS:.0f} s",
            hint="try again, or end the process that holds it",
        )
    if name in _NO_ROOM:
        return StoreUnwritable(
            f"cannot write {path}: the disk is full or failed: {text}", hint="free some disk space"
        )
    if name in _FORBIDDEN:
        return StoreUnwritable(f"cannot write {path}: {text}", hint=_CHECK_OWNER)
    return StoreError(f"{path}: {text}")


def in_transaction[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work(db)` in a `BEGIN IMMEDIATE` transaction. Roll back on any error."""
    db.execute("BEGIN IMMEDIATE")
    return finish(db, work)


def finish[T](db: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run `work(db)`, then `COMMIT`. Roll back on any error."""
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def prepare(plan: OpenPlan) -> sqlite3.Connection:
    """Open a connection to the file. Create and migrate the file if needed.

    Raises:
        StoreError: as for `open_database()`, or `StoreCorrupt`.
    """
    if plan.is_read_only:
        return prepare_read_only(plan)
    try:
        _make_private(plan.path)
        db = connect(plan.path, plan.synchronous)
    except Exception as error:
        raise from_failure(error, plan.path) from error
    try:
        if any(version(db, owner.name) != len(owner.migrations) for owner in plan.owners):
            with exclusively(plan.path):
                for owner in plan.owners:
                    migrate(db, owner, plan.path)
    except Exception as error:
        db.close()
        raise from_failure(error, plan.path) from error
    except BaseException:
        db.close()
        raise
    return db


def prepare_read_only(plan: OpenPlan) -> sqlite3.Connection:
    """Open a read-only connection.

    SQLite can read a file with a write-ahead log only if it may create the log's index in the same
    folder. A file without a log is complete, so it is opened as immutable.

    Raises:
        StoreUnwritable: the file cannot be read, or its tables have another version.
        StoreCorrupt: the file is damaged.
    """
    log = Path(f"{plan.path}-wal")
    suffix = "" if log.exists() and log.stat().st_size else "&immutable=1"
    try:
        db = sqlite3.connect(
            f"file:{quote(str(plan.path))}?mode=ro{suffix}",
            uri=True,
            timeout=BUSY_TIMEOUT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except sqlite3.Error as error:
        raise StoreUnwritable(f"cannot read {plan.path}: {error}", hint=_CHECK_OWNER) from error
    try:
        if any(version(db, owner.name) != len(owner.migrations) for owner in plan.owners):
            raise StoreUnwritable(f"cannot migrate {plan.path}", hint=_CHECK_OWNER)
    except Exception as error:
        db.close()
        raise from_failure(error, plan.path) from error
    return db


def migrate(db: sqlite3.Connection, owner: Owner, path: Path) -> None:
    """Run the owner's migrations that this file lacks, in one transaction.

    If the owner already has tables in the file, the file is first copied to the `backups/` folder,
    unless the owner's rows are expendable or are rebuilt from other data.

    Raises:
        StoreTooNew: a later version of upwell wrote these tables.
        StoreTooOld: a version whose tables are no longer read wrote them.
    """
    current = version(db, owner.name)
    refuse_later(owner, current, path, "upgrade upwell, or set UPWELL_HOME to another folder")
    if 0 < current < owner.oldest:
        raise StoreTooOld(
            f"{path} was written by upwell 0.1.0, which this version cannot read",
            hint="open it with upwell 0.2.0 first, or set UPWELL_HOME to another folder",
        )
    if current == len(owner.migrations):
        return
    if current and not owner.expendable and owner.salvage is not recreate:
        folder = path.parent / "backups"
        folder.mkdir(mode=0o700, exist_ok=True)
        copy = folder / f"{path.stem}-before-{owner.name}-v{current + 1}.db"
        if not copy.exists():
            vacuum_into(db, copy)

    def migrate_owner(connection: sqlite3.Connection) -> None:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version "
            "(owner TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )
        for migration in owner.migrations[version(connection, owner.name) :]:
            migration(connection)
        connection.execute(
            "INSERT INTO schema_version VALUES (?, ?) "
            "ON CONFLICT (owner) DO UPDATE SET version = excluded.version",
            (owner.name, len(owner.migrations)),
        )

    in_transaction(db, migrate_owner)


def refuse_later(owner: Owner, current: int, path: Path, hint: str) -> None:
    """Refuse tables of a later version of upwell.

    Raises:
        StoreTooNew: `current`, the version of the owner's tables, is not known here.
    """
    if current > len(owner.migrations):
        raise StoreTooNew(
            f"{path} was written by a later upwell ({owner.name} schema {current}, "
            f"this one knows {len(owner.migrations)})",
            hint=hint,
        )


def vacuum_into(db: sqlite3.Connection, path: Path) -> None:
    """Write a consistent copy to `path` (mode 0600), completely or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT | os.O_RDWR, 0o600))
    try:
        db.execute("VACUUM INTO ?", (str(partial),))
        with partial.open("rb") as written:
            os.fsync(written.fileno())  # VACUUM INTO does not
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def version(db: sqlite3.Connection, owner: str) -> int:
    """Return the version of an owner's tables, or 0 if they do not exist.

    Raises:
        ValueError: the version is damaged.
    """
    has_versions = db.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'schema_version'"
    ).fetchone()
    if not has_versions:
        return 0
    row = db.execute("SELECT version FROM schema_version WHERE owner = ?", (owner,)).fetchone()
    if row is None:
        return 0
    if type(row[0]) is not int or not 0 < row[0] <= MAX_VERSION:
        raise ValueError(f"{owner} schema {row[0]!r:.40}")
    return row[0]


def _make_private(path: Path) -> None:
    """Create the file if it does not exist.

    An existing file must not be opened and closed here. POSIX locks belong to the process, so
    closing it would release the locks held by other connections (sqlite.org/howtocorrupt.html,
    section 2.2).
    """
    try:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        info = path.stat()
    except OSError as error:
        raise StoreUnwritable(
            f"cannot open {path}: {error.strerror}", hint="check its owner and permissions"
        ) from error
    if not stat.S_ISREG(info.st_mode):
        raise StoreUnwritable(f"{path} is not a regular file", hint="move it away")
    if hasattr(os, "getuid") and info.st_uid != os.getuid():
        raise StoreUnwritable(
            f"{path} belongs to another user", hint="set UPWELL_HOME to a folder of your own"
        )


def delete_database(path: Path) -> None:
    """Delete a database and its log. Processes that have the database open create a new one when
    they next use it."""
    with exclusively(path):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)


def connect(path: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open a connection with the pragmas that all upwell files use."""
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
