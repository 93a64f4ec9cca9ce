"""Daily backups of a database, and its replacement by a sound copy when it is damaged.

The first process of the day writes `backups/NAME-2026-04-09.db` with `VACUUM INTO` on a separate
connection, which does not block other connections. The newest seven are kept.

The sound copy has the rows that SQLite can still read and, for tables with unreadable rows, those
of the newest daily backup. The caller holds the lock of the file (`files.exclusively()`). The file
is checked again, because another process may have repaired it. If SQLite can still lock the damaged
file, its write lock is held until the new file is in place. Without the lock, rows that other
processes commit in the meantime would be lost.
"""

import asyncio
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, structs

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import exclusively, read_regular_file, write_atomically, writing
from upwell.ground.sqlite.file import (
    UNREADABLE,
    DamagedFile,
    OpenPlan,
    Owner,
    connect,
    from_failure,
    from_sqlite,
    migrate,
    vacuum_into,
    version,
)
from upwell.ground.trace import LOG

KEEP = 7


class Backups:
    """The backups of one database file in `folder`."""

    def __init__(self, path: Path, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._folder = folder
        self._clock = clock
        self._dated = re.compile(re.escape(path.stem) + r"-\d{4}-\d{2}-\d{2}\.db")

    def list(self) -> tuple[Path, ...]:
        """Return the daily backups, newest first."""
        if not self._folder.is_dir():
            return ()
        backups = [path for path in self._folder.iterdir() if self._dated.fullmatch(path.name)]
        return tuple(sorted(backups, reverse=True))

    def is_due(self) -> bool:
        """Whether today's backup is missing."""
        return not self._today().exists()

    async def make_if_due(self) -> Path | None:
        """Make today's backup. Returns None if it already exists. If the backup cannot be made, a
        StoreError is raised, and existing backups are kept."""
        return await asyncio.to_thread(self._make, self._today(), replace=False)

    async def make(self) -> Path:
        """Make today's backup, replacing an existing one."""
        path = self._today()
        await asyncio.to_thread(self._make, path, replace=True)
        return path

    def _today(self) -> Path:
        day = datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat()
        return self._folder / f"{self._path.stem}-{day}.db"

    def _make(self, path: Path, *, replace: bool) -> Path | None:
        if path.exists() and not replace:
            return None
        with writing(path):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusively(self._folder / self._path.stem):
                if path.exists() and not replace:
                    return None
                # Backups that were killed have left these.
                for partial_path in self._folder.glob(f"{self._path.stem}-*.db.partial*"):
                    if self._dated.match(partial_path.name):
                        partial_path.unlink(missing_ok=True)
                try:
                    with closing(sqlite3.connect(self._path)) as db:
                        vacuum_into(db, path)
                except sqlite3.Error as error:
                    raise from_sqlite(error, path) from error
                self._remove_old(path)
        return path

    def _remove_old(self, newest: Path) -> None:
        """Keep `newest` and those before it. While the clock was wrong, backups may have got dates
        in the future, and those go first."""
        others = [other for other in self.list() if other != newest]
        others.sort(key=lambda other: (other < newest, other), reverse=True)
        for old in others[KEEP - 1 :]:
            old.unlink(missing_ok=True)


class Salvage(Struct, frozen=True):
    """The record of a salvage. `quarantined`: the name of the damaged file. `rows`: how many rows
    were read from it. `is_complete`: whether all its rows were. If not, `restored` rows were taken
    from `backup`, the name of a file ("" if there was none). `at`: epoch seconds."""

    quarantined: str
    rows: int
    is_complete: bool
    restored: int = 0
    backup: str = ""
    at: float = 0.0


def replace_damaged(plan: OpenPlan) -> None:
    """Replace a damaged file with a sound copy of the rows that can be read.

    The damaged file is kept in the same folder as `NAME.corrupt-TIME`. A sound file is not changed.
    """
    damaged = sqlite3.connect(plan.path, isolation_level=None)
    try:
        if is_sound(damaged, plan):
            return
        with suppress(sqlite3.DatabaseError):
            damaged.execute("PRAGMA busy_timeout = 2000")
            damaged.execute("BEGIN IMMEDIATE")
        fresh = plan.path.with_name(plan.path.name + ".salvage")
        for suffix in ("", "-wal", "-shm", ".lock"):
            Path(f"{fresh}{suffix}").unlink(missing_ok=True)
        salvage = _copy_rows(damaged, fresh, plan)
        moved_path = _move_aside(plan.path)
        fresh.replace(plan.path)
        salvage = structs.replace(salvage, quarantined=moved_path.name, at=time.time())
        with suppress(OSError):
            write_atomically(_record_path(plan.path), json.dumps(structs.asdict(salvage)) + "\n")
        LOG.error("%s was damaged: %s", plan.path, salvage)
    finally:
        damaged.close()


def last_salvage(path: Path) -> Salvage | None:
    """Return the last salvage of the database at `path`, if any. Returns None if the user has
    removed or moved the damaged file, and therefore knows about the damage."""
    try:
        salvage = convert(json.loads(read_regular_file(_record_path(path))), Salvage)
    except (OSError, ValueError):
        return None
    return salvage if path.with_name(salvage.quarantined).exists() else None


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged.json")


def is_sound(db: sqlite3.Connection, plan: OpenPlan) -> bool:
    """Return whether SQLite's checks find no damage, all text can be decoded, and the file has the
    plan's tables.

    Raises:
        sqlite3.Error: the file is locked or cannot be read.
    """
    try:
        rows = db.execute("PRAGMA integrity_check(1)").fetchall()
        indexes = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%USING fts5%'"
        for (name,) in db.execute(indexes).fetchall():
            db.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 0)")
        return rows == [("ok",)] and _is_readable(db) and _has_tables(db, plan)
    except Exception as error:
        if isinstance(from_failure(error, plan.path), StoreUnwritable):
            raise
        return False


def _is_readable(db: sqlite3.Connection) -> bool:
    """SQLite's checks accept text that is not valid UTF-8, so every row is read."""
    try:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _ in db.execute(f'SELECT * FROM "{name}"'):
                pass
    except UNREADABLE:
        return False
    return True


def _has_tables(db: sqlite3.Connection, plan: OpenPlan) -> bool:
    """Return whether the schema has everything that migrations up to the file's version create."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        for owner in plan.owners:
            for migration in owner.migrations[: version(db, owner.name)]:
                migration(expected)
        return _schema(expected) <= _schema(db)


def _schema(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))


def copy_table(source: DamagedFile, fresh: sqlite3.Connection, table: str) -> int:
    """Copy the readable rows of an ordinary table that `fresh` does not have. Returns the number
    of copied rows."""
    present = source.columns(table)
    names = [row[1] for row in fresh.execute(f"PRAGMA table_info({table})") if row[1] in present]
    if not names:
        return 0
    columns = ", ".join(f'"{name}"' for name in names)
    statement = f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"
    rows: Iterable[Sequence[Any]]
    schema = fresh.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    if "WITHOUT ROWID" in schema.upper():
        rows = source.rows_without_rowid(table, columns)
    else:
        rows = (row[1:] for row in source.rows(table, columns))

    def insert(row: Sequence[Any]) -> int:
        return fresh.execute(statement, row).rowcount

    return sum(insert_row(fresh, partial(insert, row)) for row in rows)


def insert_row(fresh: sqlite3.Connection, insert: Callable[[], int]) -> int:
    """Run `insert()` and return the number of inserted rows. A damaged row may contain anything, so
    a failure is rolled back and counts as 0 rows.

    Raises:
        StoreUnwritable: the disk is full or failed.
    """
    fresh.execute("SAVEPOINT row")
    try:
        inserted = insert()
    except sqlite3.OperationalError as error:
        raise StoreUnwritable(
            f"cannot write a sound copy: {error}", hint="free some disk space"
        ) from error
    except Exception:
        fresh.execute("ROLLBACK TO row")
        inserted = 0
    fresh.execute("RELEASE row")
    return inserted


def _copy_rows(damaged: sqlite3.Connection, path: Path, plan: OpenPlan) -> Salvage:
    """Create a sound file at `path` with the readable rows. For an owner with unreadable rows, add
    those of the newest backup that can be read.

    Raises:
        StoreUnwritable: the new file cannot be written.
    """
    rows = restored = 0
    is_complete, backup_name = True, ""
    with closing(connect(path, plan.synchronous)) as fresh:
        path.chmod(0o600)
        created = []
        for owner in plan.owners:
            before = _tables(fresh)
            migrate(fresh, owner, path)
            created.append(sorted(_tables(fresh) - before))
        for owner, tables in zip(plan.owners, created, strict=True):
            source = DamagedFile(damaged)
            rows += _copy_owner(source, fresh, owner, tables)
            if not source.is_complete:
                is_complete = False
                count, name = _copy_backup(fresh, plan, owner, tables)
                restored, backup_name = restored + count, name or backup_name
        fresh.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Salvage("", rows, is_complete, restored, backup_name)


def _copy_backup(
    fresh: sqlite3.Connection, plan: OpenPlan, owner: Owner, tables: Sequence[str]
) -> tuple[int, str]:
    for path in Backups(plan.path, plan.path.parent / "backups").list():
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            backup = DamagedFile(db)
            restored = _copy_owner(backup, fresh, owner, tables)
        if backup.is_complete:
            return restored, path.name if restored else ""
    return 0, ""


def _copy_owner(
    source: DamagedFile, fresh: sqlite3.Connection, owner: Owner, tables: Sequence[str]
) -> int:
    fresh.execute("BEGIN IMMEDIATE")
    try:
        if owner.salvage:
            saved = owner.salvage(source, fresh)
        else:
            saved = sum(copy_table(source, fresh, table) for table in tables)
    except StoreUnwritable:
        raise
    except Exception as error:
        fresh.execute("ROLLBACK")
        source.is_complete = False
        LOG.info("SQLite cannot read the rows of %s: %r", owner.name, error)
        return 0
    fresh.execute("COMMIT")
    return saved


def _tables(db: sqlite3.Connection) -> set[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows if name != "schema_version"}


def _move_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    moved_path = path.with_name(f"{path.name}.corrupt-{stamp}")
    if moved_path.exists():
        moved_path = path.with_name(f"{path.name}.corrupt-{stamp}-{time.time_ns() % 10**9}")
    for suffix in ("-wal", "-shm", ""):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.replace(f"{moved_path}{suffix}")
    return moved_path
