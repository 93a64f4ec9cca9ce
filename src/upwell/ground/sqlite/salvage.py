"""Replace a damaged database by a sound one with the rows that can still be read.

The caller holds the lock of the file (`files.exclusively`). Under it the damage is checked again,
since another process may have repaired the file. If the damaged file can still be locked, its write
lock is held until the new file is in place, so that no other process can commit a row that would be
lost.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from upwell.ground.files import read_regular_file, write_atomically
from upwell.ground.sqlite.file import CORRUPT, Plan, connect, migrate
from upwell.ground.trace import LOG

MAX_SKIPS = 20_000
"""At most this many row numbers are tried one by one after an unreadable page."""


def replace_damaged(plan: Plan) -> None:
    """Replace a damaged file by a sound one with the rows that could be read.

    The damaged file stays beside it as `NAME.corrupt-TIME`. A sound file is left alone.
    """
    damaged = sqlite3.connect(plan.path, isolation_level=None)
    try:
        if is_sound(damaged):
            return
        _hold(damaged)
        fresh = plan.path.with_name(plan.path.name + ".salvage")
        _remove(fresh)
        saved = _copy_rows(damaged, fresh, plan)
        aside = _move_aside(plan.path)
        fresh.replace(plan.path)
        _write_record(plan.path, aside, saved)
        LOG.error("%s was damaged: moved to %s, %d rows saved", plan.path, aside.name, saved)
    finally:
        damaged.close()


@dataclass(frozen=True, slots=True)
class Salvage:
    """A salvage: `quarantined` is the damaged file, `rows` the number of copied rows, `at` the
    time in epoch seconds."""

    quarantined: Path
    rows: int
    at: float


def last_salvage(path: Path) -> Salvage | None:
    """Return the last salvage of the database at `path` while the damaged file is still beside it.

    Once the user has removed or moved that file, they know about the damage.
    """
    try:
        record = json.loads(read_regular_file(_record_path(path)))
        quarantined = path.with_name(str(record["aside"]))
        salvage = Salvage(quarantined, int(record["rows"]), float(record["at"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return salvage if quarantined.exists() else None


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.salvaged.json")


def _write_record(path: Path, aside: Path, rows: int) -> None:
    """Record the salvage for `last_salvage`. A failure only loses the record."""
    record = json.dumps({"aside": aside.name, "rows": rows, "at": time.time()})
    with suppress(OSError):
        write_atomically(_record_path(path), record + "\n")


def is_sound(db: sqlite3.Connection) -> bool:
    """Tell whether SQLite's checks of the tables and text indexes find no damage.

    Raises:
        sqlite3.Error: the file could not be checked (locked, unreadable).
    """
    try:
        rows = db.execute("PRAGMA integrity_check(1)").fetchall()
        for name in _text_indexes(db):
            db.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 0)")
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise
    return rows == [("ok",)]


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether an error means damage, rather than a busy or unreachable file."""
    return "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2]) in CORRUPT


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
    """Yield the readable rows of `table`: `key`, then `columns`.

    Unreadable ranges are skipped key by key.
    """
    last, skips = -1, 0
    while skips < MAX_SKIPS:
        try:
            for row in db.execute(
                f"SELECT {key}, {columns} FROM {table} WHERE {key} > ? ORDER BY {key}", (last,)
            ):
                last, skips = int(row[0]), 0
                yield row
        except sqlite3.DatabaseError:
            last, skips = last + 1, skips + 1
        else:
            return


def copy_table(damaged: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> int:
    """Copy the readable rows of an ordinary table. Returns their number."""
    columns = [row[1] for row in fresh.execute(f"PRAGMA table_info({table})")]
    marks = ",".join("?" * len(columns))
    saved = 0
    with suppress(sqlite3.DatabaseError):
        for row in damaged.execute(f"SELECT {','.join(columns)} FROM {table}"):
            fresh.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
            saved += 1
    return saved


def _hold(damaged: sqlite3.Connection) -> None:
    """Keep other writers out, as far as the damage allows."""
    with suppress(sqlite3.DatabaseError):
        damaged.execute("PRAGMA busy_timeout = 2000")
        damaged.execute("BEGIN IMMEDIATE")


def _copy_rows(damaged: sqlite3.Connection, path: Path, plan: Plan) -> int:
    with closing(connect(path, plan.synchronous)) as fresh:
        path.chmod(0o600)
        saved = 0
        for owner in plan.owners:
            before = _tables(fresh)
            migrate(fresh, owner, path)
            created = _tables(fresh) - before
            fresh.execute("BEGIN IMMEDIATE")
            if owner.salvage:
                saved += owner.salvage(damaged, fresh)
            else:
                saved += sum(copy_table(damaged, fresh, table) for table in sorted(created))
            fresh.execute("COMMIT")
        fresh.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return saved


def _tables(db: sqlite3.Connection) -> set[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows if name != "schema_version"}


def _move_aside(path: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.corrupt-{stamp}")
    for suffix in ("-wal", "-shm", ""):
        part = Path(f"{path}{suffix}")
        if part.exists():
            part.replace(f"{aside}{suffix}")
    return aside


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", ".lock"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
