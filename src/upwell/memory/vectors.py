"""The vectors of memories, beside them in the same file: which model made each, what is missing.

    vector_model ──< vector >── memory (memory/schema.py)

Vectors are derived and may be made again. One goes with its memory, by a trigger, so that what is
deleted or said anew leaves none behind. Numbers are kept at half precision, which moves a cosine
by less than 0.001.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from upwell.ground.db import Owner
from upwell.ground.sqlite_file import anew
from upwell.memory.rows import text_of

MAX_CHARS = 2_000
"""Of a longer memory only the beginning is given to a model."""


@dataclass(frozen=True, slots=True)
class Due:
    """A memory without a vector; `hash` tells whether it still says this when there is one."""

    n: int
    hash: str
    text: str


def model_number(db: sqlite3.Connection, name: str, dim: int) -> int:
    """Under which number this model's vectors stand; makes one for a new model."""
    row = db.execute(
        "INSERT INTO vector_model (name, dim) VALUES (?, ?) ON CONFLICT (name, dim) "
        "DO UPDATE SET name = excluded.name RETURNING no",
        (name, dim),
    ).fetchone()
    return int(row[0])


def known_model(db: sqlite3.Connection, name: str, dim: int) -> int | None:
    """The number of a model that has made vectors here; None for one that has not."""
    row = db.execute(
        "SELECT no FROM vector_model WHERE name = ? AND dim = ?", (name, dim)
    ).fetchone()
    return int(row[0]) if row else None


def due(db: sqlite3.Connection, model: int, after: int, limit: int) -> list[Due]:
    """The next memories, by number, that have no vector of this model. Rules are never searched."""
    rows = db.execute(
        "SELECT m.n, m.content_hash, m.text FROM memory m "
        "LEFT JOIN vector v ON v.n = m.n AND v.model = ? "
        "WHERE v.n IS NULL AND NOT m.pinned AND m.n > ? ORDER BY m.n LIMIT ?",
        (model, after, limit),
    )
    return [Due(n, hash, text_of(text)[:MAX_CHARS]) for n, hash, text in rows]


def keep(db: sqlite3.Connection, model: int, made: Sequence[Due], vectors: Sequence[bytes]) -> None:
    """Keep these vectors, but for memories that are gone or say something else by now."""
    db.executemany(
        "INSERT OR REPLACE INTO vector (n, model, numbers) "
        "SELECT n, ?, ? FROM memory WHERE n = ? AND content_hash = ?",
        [(model, numbers, one.n, one.hash) for one, numbers in zip(made, vectors, strict=True)],
    )


def counts(db: sqlite3.Connection, model: int) -> tuple[int, int]:
    """How many memories have a vector of this model, and how many should."""
    (made,) = db.execute("SELECT count(*) FROM vector WHERE model = ?", (model,)).fetchone()
    (all_,) = db.execute("SELECT count(*) FROM memory WHERE NOT pinned").fetchone()
    return int(made), int(all_)


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE vector_model (no INTEGER PRIMARY KEY, name TEXT NOT NULL, "
        "dim INTEGER NOT NULL, UNIQUE (name, dim))"
    )
    db.execute(
        """CREATE TABLE vector (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, n INTEGER NOT NULL UNIQUE,
            model INTEGER NOT NULL REFERENCES vector_model (no), numbers BLOB NOT NULL)"""
    )
    db.execute(
        "CREATE TRIGGER vector_gone AFTER DELETE ON memory "
        "BEGIN DELETE FROM vector WHERE n = old.n; END"
    )


OWNER = Owner("vectors", [_create], anew)
