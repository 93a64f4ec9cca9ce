"""Find the memories nearest to a vector.

One bit per dimension, its sign, is enough to find candidates (Charikar 2002). The sign bits of all
vectors are held in RAM; those of a million vectors with 384 dimensions take 48 MB. The vectors that
are nearest by Hamming distance are then read from the file and compared exactly.

A cosine means little by itself, so each question is also compared with a sample of the store.
Cosines are expressed as deviations from the sample's mean, so that models with different ranges are
comparable.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import batched

import numpy as np

from upwell.ground.llm import Vector
from upwell.ground.types.rpc import is_visible
from upwell.memory.lookups import SEQUENCE_BITS, SHUFFLE_FACTOR, SHUFFLE_PRIME
from upwell.memory.ranking.signals import Likeness
from upwell.memory.sqlite.rows import CHUNK, marks
from upwell.memory.vectors import (
    NEAREST,
    SAMPLE,
    Floats,
    Numbers,
    background_of,
    unpacked,
    usual_cosines,
)

COMPARED = 240
"""How many of the memories nearest by sign bits are compared exactly. The best `NEAREST` of them
become candidates."""
_BITS = 64
_GROWTH = 1.5

Codes = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


class Nearness:
    """The vectors of one model in one file. Used only on the database's reading thread."""

    def __init__(self, model: int, dim: int) -> None:
        self.model = model
        self._dim = dim
        self._words = -(-dim // _BITS)
        self._forget()

    def look(
        self,
        db: sqlite3.Connection,
        vector: Vector,
        scopes: Sequence[int],
        namespaces: Sequence[str],
        others: Iterable[int],
    ) -> Likeness | None:
        """Return the nearest memories in these scopes and namespaces, and the cosines of `others`.
        An empty `namespaces` means all namespaces. Returns None if no memory in these scopes and
        namespaces has a vector."""
        self._refresh(db)
        question = np.asarray(vector, dtype=np.float32)
        seen = np.flatnonzero(self._visible(scopes, namespaces))
        distance = self._distances(question, seen)
        if len(seen) > COMPARED:
            seen = seen[np.argpartition(distance, COMPARED)[:COMPARED]]
        near = self._cosines(db, question, self._memories[seen].tolist())
        if not near or not len(self._sample):
            return None
        mean, spread = usual_cosines(self._sample, self._sampled, question, scopes)
        best = dict(sorted(near.items(), key=lambda pair: -pair[1]))
        nearest = dict(list(best.items())[:NEAREST])
        missing = [n for n in others if n not in nearest]
        return Likeness(
            cosines=nearest | self._cosines(db, question, missing),
            mean=mean,
            spread=spread,
            background=background_of(list(best.values()), mean),
        )

    def _forget(self) -> None:
        self._last = 0
        self._memories: Numbers = np.empty(0, np.int64)
        self._scopes: Numbers = np.empty(0, np.int64)
        self._namespaces: Numbers = np.empty(0, np.int64)
        self._codes: Codes = np.empty((self._words, 0), np.uint64)
        self._names: dict[str, int] = {}
        self._sample: Floats = np.empty((0, self._dim), np.float32)
        self._sampled: Numbers = np.empty(0, np.int64)

    def _refresh(self, db: sqlite3.Connection) -> None:
        """Load the vectors that this or another process has written since the last call."""
        last, count = db.execute(
            "SELECT coalesce(max(seq), 0), count(*) FROM vector WHERE model = ?", (self.model,)
        ).fetchone()
        if count < len(self._memories) / 2 or last < self._last:
            self._forget()
        if last == self._last:
            return
        rows = db.execute(
            "SELECT v.n, m.namespace, v.numbers FROM vector v JOIN memory m ON m.n = v.n "
            "WHERE v.model = ? AND v.seq > ? ORDER BY v.seq",
            (self.model, self._last),
        )
        while batch := rows.fetchmany(10_000):
            self._append(batch)
        self._last = last
        self._draw(db)

    def _append(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        memories, namespaces, numbers = zip(*rows, strict=True)
        name_numbers = [self._names.setdefault(name, len(self._names)) for name in namespaces]
        self._memories = np.append(self._memories, np.asarray(memories, np.int64))
        self._scopes = self._memories >> SEQUENCE_BITS
        self._namespaces = np.append(self._namespaces, np.asarray(name_numbers, np.int64))
        codes = self._coded(unpacked(numbers, self._dim))
        self._codes = np.concatenate([self._codes, codes], axis=1)

    def _coded(self, vectors: Floats) -> Codes:
        bits = np.zeros((len(vectors), self._words * _BITS), np.uint8)
        bits[:, : self._dim] = vectors > 0
        packed = np.packbits(bits, axis=1)
        return np.ascontiguousarray(packed.view(np.uint64).T)

    def _draw(self, db: sqlite3.Connection) -> None:
        if len(self._memories) <= _GROWTH * len(self._sampled) and len(self._sampled) >= SAMPLE:
            return
        shuffled = self._memories % SHUFFLE_PRIME * SHUFFLE_FACTOR % SHUFFLE_PRIME
        sample = self._memories[np.argsort(shuffled)[:SAMPLE]].tolist()
        rows = list(_numbers(db, sample, self.model))
        self._sampled = np.asarray([n for n, _ in rows], np.int64)
        self._sample = unpacked([numbers for _, numbers in rows], self._dim)

    def _visible(
        self, scopes: Sequence[int], namespaces: Sequence[str]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        visible = np.isin(self._scopes, np.asarray(scopes, np.int64))
        if namespaces:
            numbers = [no for name, no in self._names.items() if is_visible(name, namespaces)]
            visible &= np.isin(self._namespaces, np.asarray(numbers, np.int64))
        return visible

    def _distances(
        self, question: Floats, seen: Numbers
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        code = self._coded(question[None, :])
        all_seen = len(seen) == len(self._memories)
        total = np.zeros(len(seen), np.int32)
        for word in range(self._words):
            column = self._codes[word] if all_seen else self._codes[word][seen]
            total += np.bitwise_count(column ^ code[word, 0])
        return total

    def _cosines(
        self, db: sqlite3.Connection, question: Floats, memories: Sequence[int]
    ) -> dict[int, float]:
        rows = list(_numbers(db, memories, self.model))
        if not rows:
            return {}
        likeness = unpacked([numbers for _, numbers in rows], self._dim) @ question
        return dict(zip([n for n, _ in rows], likeness.tolist(), strict=True))


def _numbers(
    db: sqlite3.Connection, memories: Sequence[int], model: int
) -> Iterable[tuple[int, bytes]]:
    for chunk in batched(memories, CHUNK):
        yield from db.execute(
            f"SELECT n, numbers FROM vector WHERE n IN ({marks(chunk)}) AND model = ?",
            (*chunk, model),
        )
