"""The tables of `index.db`: memories made of files, and which files these are.

    file ──< part ── memory (memory/schema.py)

Everything here is derived: a damaged file is begun anew, a deleted one is built at the next search.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from upwell.ground.db import Owner
from upwell.ground.sqlite_file import anew
from upwell.ground.types import Memory
from upwell.memory import index
from upwell.memory.scan import Found, Known
from upwell.memory.schema import OWNER as MEMORY_OWNER
from upwell.memory.vectors import OWNER as VECTORS_OWNER


@dataclass(frozen=True, slots=True)
class Reading:
    """A file, read: its memories, each complete, and what stands `around` them by id. `problem`
    says why there are none. None as `memories`: it says what it said before."""

    found: Found
    hash: str
    memories: tuple[Memory, ...] | None = ()
    around: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def load(db: sqlite3.Connection) -> dict[str, Known]:
    """Every file that is known, by its path."""
    rows = db.execute("SELECT path, size, mtime_ns, hash, key FROM file")
    return {row[0]: Known(*row[1:]) for row in rows}


def put(db: sqlite3.Connection, readings: Sequence[Reading], tenant: str) -> None:
    """Bring these files up to date. A chunk that says what it said keeps its row."""
    changed: list[Memory] = []
    around: dict[str, str] = {}
    for reading in readings:
        if reading.memories is None:
            db.execute(
                "UPDATE file SET size = ?, mtime_ns = ? WHERE path = ?",
                (reading.found.size, reading.found.mtime_ns, reading.found.path),
            )
            continue
        no = _note(db, reading)
        fresh = {memory.id: memory for memory in reading.memories}
        changed += _differing(db, tenant, no, fresh)
        around |= reading.around
        db.execute("DELETE FROM part WHERE file = ?", (no,))
        db.executemany("INSERT OR REPLACE INTO part VALUES (?, ?)", [(id, no) for id in fresh])
    index.insert(db, changed, around)


def drop(db: sqlite3.Connection, paths: Iterable[str], tenant: str) -> None:
    """Forget these files and what was made of them."""
    for path in paths:
        row = db.execute("SELECT no FROM file WHERE path = ?", (path,)).fetchone()
        if row is None:
            continue
        _differing(db, tenant, row[0], {})
        db.execute("DELETE FROM part WHERE file = ?", row)
        db.execute("DELETE FROM file WHERE no = ?", row)


def file_cited(
    db: sqlite3.Connection, cited: str, project: str | None, namespaces: Sequence[str] = ()
) -> tuple[str, str] | None:
    """Path and source path of the file that a project cites so; its own before a global one. Where
    `namespaces` are given, every chunk of it is in one of them."""
    visible = "" if project is None else "AND project IN ('', ?)"
    if namespaces:
        marks = ",".join("?" * len(namespaces))
        visible += (
            " AND no IN (SELECT file FROM part) AND NOT EXISTS (SELECT 1 FROM part JOIN memory "
            f"ON memory.id = part.id WHERE part.file = no AND memory.namespace NOT IN ({marks}))"
        )
    row = db.execute(
        f"SELECT path, source FROM file WHERE cited = ? {visible} "
        "ORDER BY project DESC, no LIMIT 1",
        (cited, *(() if project is None else (project,)), *namespaces),
    ).fetchone()
    return (row[0], row[1]) if row else None


def counts(db: sqlite3.Connection, source: str = "") -> tuple[int, int]:
    """How many files that say something and how many chunks there are, of one source or of all."""
    files, chunks = db.execute(
        "SELECT (SELECT count(*) FROM file WHERE problem = ''), (SELECT count(*) FROM part)"
        if not source
        else "SELECT count(*), total((SELECT count(*) FROM part WHERE file = no)) FROM file "
        "WHERE problem = '' AND source = ?",
        (source,) if source else (),
    ).fetchone()
    return int(files), int(chunks)


def problems(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """Files that are there and say nothing, and why."""
    return db.execute("SELECT path, problem FROM file WHERE problem != '' ORDER BY path").fetchall()


def _note(db: sqlite3.Connection, reading: Reading) -> int:
    found = reading.found
    source = found.source
    row = db.execute(
        "INSERT INTO file (path, source, cited, project, key, size, mtime_ns, hash, problem) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (path) DO UPDATE SET "
        "source = excluded.source, cited = excluded.cited, project = excluded.project, "
        "key = excluded.key, size = excluded.size, mtime_ns = excluded.mtime_ns, "
        "hash = excluded.hash, problem = excluded.problem RETURNING no",
        (
            found.path,
            source.path,
            source.citation(found.path),
            source.project or "",
            source.key,
            found.size,
            found.mtime_ns,
            reading.hash,
            reading.problem,
        ),
    ).fetchone()
    return int(row[0])


def _differing(
    db: sqlite3.Connection, tenant: str, no: int, fresh: Mapping[str, Memory]
) -> list[Memory]:
    """What has to be indexed of a file. What it no longer says is removed, what only moved to
    other lines is moved."""
    ids = [row[0] for row in db.execute("SELECT id FROM part WHERE file = ?", (no,))]
    numbers = {id: index.number_of(db, tenant, id) for id in ids}
    old = index.by_number(db, [n for n in numbers.values() if n is not None])
    same: set[str] = set()
    for id, n in numbers.items():
        if n is None:
            continue
        new = fresh.get(id)
        if new is None:
            index.remove(db, n)
        elif _placed(old[n], new) == new:
            same.add(id)
            db.execute(
                "UPDATE memory SET first_line = ?, last_line = ?, created_at = ?, updated_at = ?, "
                "viewed_at = ? WHERE n = ?",
                (*(new.lines or (None, None)), new.created_at, new.updated_at, new.viewed_at, n),
            )
    return [memory for id, memory in fresh.items() if id not in same]


def _placed(old: Memory, new: Memory) -> Memory:
    return replace(
        old,
        lines=new.lines,
        created_at=new.created_at,
        updated_at=new.updated_at,
        viewed_at=new.viewed_at,
    )


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE file (
            no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
            cited TEXT NOT NULL, project TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL, hash TEXT NOT NULL, problem TEXT NOT NULL)"""
    )
    db.execute("CREATE INDEX file_cited ON file (cited)")
    db.execute(
        "CREATE TABLE part (id TEXT PRIMARY KEY, file INTEGER NOT NULL REFERENCES file (no)) "
        "WITHOUT ROWID"
    )
    db.execute("CREATE INDEX part_file ON part (file)")


OWNERS = (
    Owner(MEMORY_OWNER.name, MEMORY_OWNER.migrations, anew),
    Owner("documents", [_create], anew),
    VECTORS_OWNER,
)
