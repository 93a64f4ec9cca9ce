"""Store the vectors of memories in the same file as the memories, and find the memories that have
no vector.

    vector_model ──< vector >── memory (memory/sqlite/rows.py)

Vectors can be rebuilt. A database trigger deletes the vector of a memory that is deleted or
changed. Vectors are stored with half precision, which changes a cosine by less than 0.001.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.sqlite.file import recreate
from upwell.memory.meaning import (
    BATCH,
    MAX_CHARS,
    DueVector,
    Progress,
    QuestionVectors,
    embed_due,
)
from upwell.memory.ranking.signals import Likeness
from upwell.memory.sqlite.rows import text_of

if TYPE_CHECKING:
    from upwell.ground.llm import Vector
    from upwell.memory.sqlite.nearness import Nearness


class VectorTable:
    """A `VectorIndex` over the memories of one file. It also finds the memories nearest to a
    question."""

    note = ""

    def __init__(self, questions: QuestionVectors, database: Database) -> None:
        self.questions = questions
        self._database = database
        self._nearness: Nearness | None = None
        self._complete_at: tuple[int, int] | None = None

    def look(
        self,
        db: sqlite3.Connection,
        vector: "Vector",
        scopes: Sequence[int],
        namespaces: Sequence[str],
        others: Iterable[int],
    ) -> Likeness | None:
        # Importing numpy takes 100 ms, and only searches by meaning need it.
        from upwell.memory.sqlite.nearness import Nearness

        embedder = self.questions.embedder
        model = known_model(db, embedder.name, embedder.dim)
        if model is None:
            return None
        if self._nearness is None or self._nearness.model != model:
            self._nearness = Nearness(model, embedder.dim)
        return self._nearness.look(db, vector, scopes, namespaces, others)

    async def catch_up(self, progress: Progress | None = None) -> int:
        if await self._database.data_version() == self._complete_at:
            return 0
        if not await self.questions.load():
            return 0
        from filelock import FileLock, Timeout

        lock = FileLock(f"{self._database.path}.vectors.lock", mode=0o600, thread_local=False)
        try:
            await asyncio.to_thread(lock.acquire, timeout=0)
        except (Timeout, OSError):
            return 0
        try:
            model = await self._model()
            write, read = self._database.write, self._database.read

            async def keep_all(vectors: Mapping[DueVector, bytes]) -> bool:
                await write(lambda db: keep(db, model, list(vectors), list(vectors.values())))
                return True

            done, is_whole = await embed_due(
                self,
                lambda after: read(lambda db: due(db, model, after, BATCH)),
                keep_all,
                progress,
            )
            if is_whole:
                self._complete_at = await self._database.data_version()
            return done
        finally:
            lock.release()

    async def counts(self) -> tuple[int, int]:
        model = await self._model()
        return await self._database.read(lambda db: counts(db, model))

    async def _model(self) -> int:
        name, dim = self.questions.embedder.name, self.questions.embedder.dim
        return await self._database.write(lambda db: model_number(db, name, dim))


def model_number(db: sqlite3.Connection, name: str, dim: int) -> int:
    row = db.execute(
        "INSERT INTO vector_model (name, dim) VALUES (?, ?) ON CONFLICT (name, dim) "
        "DO UPDATE SET name = excluded.name RETURNING no",
        (name, dim),
    ).fetchone()
    return int(row[0])


def known_model(db: sqlite3.Connection, name: str, dim: int) -> int | None:
    row = db.execute(
        "SELECT no FROM vector_model WHERE name = ? AND dim = ?", (name, dim)
    ).fetchone()
    return int(row[0]) if row else None


def due(db: sqlite3.Connection, model: int, after: int, limit: int) -> list[DueVector]:
    """Return up to `limit` memories that have no vector from this model, in the order of their
    numbers, beginning after the number `after`. Standing rules are left out, because no search
    returns them."""
    rows = db.execute(
        "SELECT m.n, m.content_hash, m.text FROM memory m "
        "LEFT JOIN vector v ON v.n = m.n AND v.model = ? "
        "WHERE v.n IS NULL AND NOT m.pinned AND m.n > ? ORDER BY m.n LIMIT ?",
        (model, after, limit),
    )
    return [DueVector(n, hash, text_of(text)[:MAX_CHARS]) for n, hash, text in rows]


def keep(
    db: sqlite3.Connection, model: int, batch: Sequence[DueVector], vectors: Sequence[bytes]
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO vector (n, model, numbers) "
        "SELECT n, ?, ? FROM memory WHERE n = ? AND content_hash = ?",
        [(model, numbers, due.n, due.hash) for due, numbers in zip(batch, vectors, strict=True)],
    )


def counts(db: sqlite3.Connection, model: int) -> tuple[int, int]:
    (embedded_count,) = db.execute(
        "SELECT count(*) FROM vector WHERE model = ?", (model,)
    ).fetchone()
    (total,) = db.execute("SELECT count(*) FROM memory WHERE NOT pinned").fetchone()
    return int(embedded_count), int(total)


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


OWNER = Owner("vectors", [_create], recreate)
