"""Replace a damaged database with a sound copy of the rows that can still be read.

The caller holds the lock of the file (`files.exclusively()`). The file is checked again, because
another process may have repaired it. If SQLite can still lock the damaged file, its write lock is
held until the new file is in place. Without the lock, rows that other processes commit in the
meantime would be lost.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import read_regular_file, write_atomically
from upwell.ground.sqlite.file import (
    Owner,
    Plan,
    connect,
    from_failure,
    in_transaction,
    migrate,
    version,
)
from upwell.ground.sqlite.pages import rows_by_table, tables_of
from upwell.ground.trace import LOG

UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, MemoryError)
"""The errors that the `sqlite3` module raises because of damage."""
MAX_SKIPS = 20_000
"""The maximum number of rowids that are tried one by one after an unreadable page."""


def replace_damaged(plan: Plan) -> None:
    """Replace a damaged file with a sound copy of the rows that can be read.

    The damaged file is kept in the same folder as `NAME.corrupt-TIME`. A sound file is not changed.
    """
    damaged = sqlite3.connect(plan.path, isolation_level=None)
    try:
        if is_sound(damaged, plan):
            return
        _hold(damaged)
        fresh = plan.path.with_name(plan.path.name + ".salvage")
        _remove(fresh)
        saved = _copy_rows(damaged, fresh, plan)
        moved_path = _move_aside(plan.path)
        fresh.replace(plan.path)
        _write_record(plan.path, moved_path, saved)
        LOG.error("%s was damaged: moved to %s, %d rows saved", plan.path, moved_path.name, saved)
    finally:
        damaged.close()


class Salvage(Struct, frozen=True):
    """The record of a salvage. `quarantined`: the damaged file. `rows`: the number of copied rows.
    `at`: epoch seconds."""

    quarantined: Path
    rows: int
    at: float


def last_salvage(path: Path) -> Salvage | None:
    """Return the last salvage of the database at `path`, if any. Returns None if the user has
    removed or moved the damaged file, and therefore knows about the damage."""
    try:
        record = json.loads(read_regular_file(_record_path(path)))
        quarantined = path.with_name(str(record["aside"]))
        salvage = Salvage(quarantined, int(record["rows"]), float(record["at"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return salvage if quarantined.exists() else None


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged.json")


def _write_record(path: Path, moved_path: Path, rows: int) -> None:
    record = json.dumps({"aside": moved_path.name, "rows": rows, "at": time.time()})
    with suppress(OSError):
        write_atomically(_record_path(path), record + "\n")


def is_sound(db: sqlite3.Connection, plan: Plan) -> bool:
    """Return whether SQLite's checks find no damage, all text can be decoded, numeric columns
    contain numbers, and the file has the plan's tables.

    Raises:
        sqlite3.Error: the file is locked or cannot be read.
    """
    try:
        rows = db.execute("PRAGMA integrity_check(1)").fetchall()
        for name in _text_indexes(db):
            db.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 0)")
        return rows == [("ok",)] and _is_readable(db) and _has_tables(db, plan) and _has_types(db)
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


def _has_tables(db: sqlite3.Connection, plan: Plan) -> bool:
    """Return whether the schema has everything that migrations up to the file's version create, and
    none of the tables that later migrations create.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as expected:
        versions = {owner.name: version(db, owner.name) for owner in plan.owners}
        for owner in plan.owners:
            for migration in owner.migrations[: versions[owner.name]]:
                migration(expected)
        if not _schema(expected) <= _schema(db):
            return False
        present = _tables(expected)
        for owner in plan.owners:
            for migration in owner.migrations[versions[owner.name] :]:
                migration(expected)
        return not (_tables(expected) - present) & _tables(db)


_TYPES = {"INTEGER": "('integer', 'null')", "REAL": "('real', 'integer', 'null')"}
"""Maps a declared type to the types of values that such a column may contain. SQLite converts each
value that upwell writes to the type of its column, so a value of any other type means damage."""


def _has_types(db: sqlite3.Connection) -> bool:
    return not any(db.execute(f"{query} LIMIT 1").fetchone() for _, query in _mistyped(db))


def _mistyped(db: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield each table that has numeric columns, with a query for the rows in which one of them
    contains a value of the wrong type."""
    derived = tuple(f"{name}_" for name in _text_indexes(db))
    for table in _tables(db) - {"sqlite_sequence", *_text_indexes(db)}:
        if table.startswith(derived):
            continue
        conditions = [
            f'typeof("{column[1]}") NOT IN {_TYPES[column[2]]}'
            for column in db.execute(f'PRAGMA table_info("{table}")')
            if column[2] in _TYPES
        ]
        if conditions:
            yield table, f'SELECT 1 FROM "{table}" WHERE {" OR ".join(conditions)}'


def _schema(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    return set(db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))


def _text_indexes(db: sqlite3.Connection) -> list[str]:
    return [
        row[0]
        for row in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%USING fts5%'"
        )
    ]


def rows_left(
    db: sqlite3.Connection, table: str, columns: str, key: str = "rowid"
) -> Iterator[tuple[object, ...]]:
    """Yield the readable rows of a table, each as the key followed by the columns. In unreadable
    ranges, keys are tried one by one."""
    last, skips = -1, 0
    while skips < MAX_SKIPS:
        try:
            for row in db.execute(
                f"SELECT {key}, {columns} FROM {table} WHERE {key} > ? ORDER BY {key}", (last,)
            ):
                last, skips = int(row[0]), 0
                yield row
        except UNREADABLE:
            last, skips = last + 1, skips + 1
        else:
            return


def copy_table(damaged: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> int:
    """Copy the rows of an ordinary table, up to the first that cannot be read. Returns the number
    of copied rows."""
    columns = [row[1] for row in fresh.execute(f"PRAGMA table_info({table})")]
    target = f"{table} VALUES ({','.join('?' * len(columns))})"
    saved = 0
    with suppress(*UNREADABLE):
        for row in damaged.execute(f"SELECT {','.join(columns)} FROM {table}"):
            saved += insert_row(fresh, partial(_insert, fresh, target, row))
    return saved


def insert_row(fresh: sqlite3.Connection, insert: Callable[[], int]) -> int:
    """Run `insert()` and return the number of inserted rows. A damaged row may contain anything, so
    a failure is rolled back and counts as 0 rows.
    """
    fresh.execute("SAVEPOINT row")
    try:
        return insert()
    except Exception:
        fresh.execute("ROLLBACK TO row")
        return 0
    finally:
        fresh.execute("RELEASE row")


def _hold(damaged: sqlite3.Connection) -> None:
    """Lock out other writers, as far as the damage allows."""
    with suppress(sqlite3.DatabaseError):
        damaged.execute("PRAGMA busy_timeout = 2000")
        damaged.execute("BEGIN IMMEDIATE")


def _copy_rows(damaged: sqlite3.Connection, path: Path, plan: Plan) -> int:
    """Create a sound file at `path` with the rows that SQLite can read and the rows that are found
    page by page. If there are none and the damaged file cannot be read, copy the rows of the
    newest backup that has any.
    """
    damaged.text_factory = _lenient
    with closing(connect(path, plan.synchronous)) as fresh, _page_by_page(plan) as pages:
        path.chmod(0o600)
        created = {}
        for owner in plan.owners:
            before = _tables(fresh)
            migrate(fresh, owner, path)
            created[owner.name] = sorted(_tables(fresh) - before)
        saved = sum(_copy_from(source, fresh, plan, created) for source in (damaged, pages))
        if not saved and not _is_readable(damaged):
            saved = _copy_backup(fresh, plan, created)
        for _, query in list(_mistyped(fresh)):
            saved -= fresh.execute(query.replace("SELECT 1 FROM", "DELETE FROM", 1)).rowcount
        fresh.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return saved


def _copy_from(
    source: sqlite3.Connection,
    fresh: sqlite3.Connection,
    plan: Plan,
    created: Mapping[str, Sequence[str]],
) -> int:
    return sum(_copy_owner(source, fresh, owner, created[owner.name]) for owner in plan.owners)


def _copy_owner(
    source: sqlite3.Connection, fresh: sqlite3.Connection, owner: Owner, tables: Sequence[str]
) -> int:
    fresh.execute("BEGIN IMMEDIATE")
    try:
        if owner.salvage:
            saved = owner.salvage(source, fresh)
        else:
            saved = sum(copy_table(source, fresh, table) for table in tables)
    except Exception as error:
        fresh.execute("ROLLBACK")
        LOG.info("SQLite cannot read the rows of %s: %r", owner.name, error)
        return 0
    fresh.execute("COMMIT")
    return saved


def _copy_backup(
    fresh: sqlite3.Connection, plan: Plan, created: Mapping[str, Sequence[str]]
) -> int:
    from upwell.ground.sqlite.backup import Backups

    for backup in Backups(plan.path, plan.path.parent / "backups").list():
        with closing(sqlite3.connect(backup, isolation_level=None)) as source:
            if saved := _copy_from(source, fresh, plan, created):
                LOG.error("%s had no readable row: %d taken from %s", plan.path, saved, backup)
                return saved
    return 0


@contextmanager
def _page_by_page(plan: Plan) -> Iterator[sqlite3.Connection]:
    """Yield a sound temporary database with the rows on intact pages."""
    path = plan.path.with_name(plan.path.name + ".pages")
    _remove(path)
    try:
        with closing(connect(path, "NORMAL")) as db:
            path.chmod(0o600)
            for owner in plan.owners:
                migrate(db, owner, path)
            db.execute("PRAGMA foreign_keys = OFF")
            try:
                in_transaction(db, lambda db: _read_pages(db, plan.path))
            except Exception as error:
                LOG.error("%s could not be read page by page: %r", plan.path, error)
            yield db
    finally:
        _remove(path)


def _read_pages(db: sqlite3.Connection, path: Path) -> None:
    derived = tuple(f"{name}_" for name in _text_indexes(db))
    for table, row in rows_by_table(path, tables_of(db)):
        if not table.name.startswith((*derived, "sqlite_", "schema_version")):
            names = ",".join(name for name, _, _ in table.columns[: len(row)])
            marks = ",".join("?" * len(row))
            insert_row(db, partial(_insert, db, f"{table.name} ({names}) VALUES ({marks})", row))


def _insert(db: sqlite3.Connection, target: str, row: Sequence[object]) -> int:
    return db.execute(f"INSERT OR IGNORE INTO {target}", row).rowcount


def _lenient(text: bytes) -> str:
    return text.decode("utf-8", "replace")


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


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
