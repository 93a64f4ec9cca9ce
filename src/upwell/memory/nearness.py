"""Which memories lie near a vector: sign bits of all of them in memory, the best looked at exactly.

A bit a dimension (the sign) ranks well enough to find candidates (Charikar 2002): the nearest by
Hamming distance are read from the file and compared exactly, so a million vectors of 384 numbers
take 48 MB. How near a memory lies means something only beside how near others lie: every question
is also put to a sample of the store, and a cosine counts in deviations from the mean of that, which
makes models of different habits comparable.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from upwell.ground.embed import Vector
from upwell.memory.schema import SEQUENCE_BITS

NEAREST = 40
LOOKED_AT = 240
"""So many of the nearest by sign bits are compared exactly; of these the best are candidates."""
SAMPLE, LEAST_SAMPLE = 400, 12
LEAST_SPREAD = 0.03
BACKGROUND_FROM, BACKGROUND_TO = 5, 15
_BITS = 64
_GROWTH = 1.5

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Codes = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]


@dataclass(frozen=True, slots=True)
class Likeness:
    """How near memories lie to a question: cosines by number, best first, and what is usual."""

    cosines: Mapping[int, float]
    mean: float
    spread: float
    background: float

    def deviations(self, n: int) -> float | None:
        """How far a memory stands above the store's mean, in deviations. None: not compared."""
        cosine = self.cosines.get(n)
        return None if cosine is None else (cosine - self.mean) / self.spread

    def margin(self, n: int) -> float:
        """How far it stands above the next best ones, in deviations."""
        return (self.cosines.get(n, self.background) - self.background) / self.spread


class Nearness:
    """The vectors that one model made of the memories of one file. Used on its reading lane."""

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
        """The nearest memories of these scopes and namespaces (all, when none is named), and how
        near `others` lie. None where nothing has a vector yet."""
        self._refresh(db)
        asked = np.asarray(vector, dtype=np.float32)
        seen = np.flatnonzero(self._visible(scopes, namespaces))
        distance = self._distances(asked, seen)
        if len(seen) > LOOKED_AT:
            seen = seen[np.argpartition(distance, LOOKED_AT)[:LOOKED_AT]]
        near = self._cosines(db, asked, self._memories[seen].tolist())
        if not near or not len(self._sample):
            return None
        mean, spread = self._usual(asked, scopes)
        best = dict(sorted(near.items(), key=lambda found: -found[1]))
        next_best = list(best.values())[BACKGROUND_FROM:BACKGROUND_TO]
        nearest = dict(list(best.items())[:NEAREST])
        missing = [n for n in others if n not in nearest]
        return Likeness(
            cosines=nearest | self._cosines(db, asked, missing),
            mean=mean,
            spread=spread,
            background=sum(next_best) / len(next_best) if next_best else mean,
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
        """Take in what was embedded since, by this process or another."""
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
        while some := rows.fetchmany(10_000):
            self._take(some)
        self._last = last
        self._draw(db)

    def _take(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        memories, namespaces, numbers = zip(*rows, strict=True)
        held = [self._names.setdefault(name, len(self._names)) for name in namespaces]
        self._memories = np.append(self._memories, np.asarray(memories, np.int64))
        self._scopes = self._memories >> SEQUENCE_BITS
        self._namespaces = np.append(self._namespaces, np.asarray(held, np.int64))
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
        rng = np.random.default_rng(len(self._memories))
        size = min(SAMPLE, len(self._memories))
        chosen = rng.choice(self._memories, size, replace=False).tolist()
        found = list(_numbers(db, chosen, self.model))
        self._sampled = np.asarray([n for n, _ in found], np.int64)
        self._sample = unpacked([numbers for _, numbers in found], self._dim)

    def _visible(
        self, scopes: Sequence[int], namespaces: Sequence[str]
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        seen = np.isin(self._scopes, np.asarray(scopes, np.int64))
        if namespaces:
            wanted = [self._names[name] for name in namespaces if name in self._names]
            seen &= np.isin(self._namespaces, np.asarray(wanted, np.int64))
        return seen

    def _usual(self, asked: Floats, scopes: Sequence[int]) -> tuple[float, float]:
        """Mean and spread of the cosines of the sample, of what is visible where that is enough."""
        mine = np.isin(self._sampled >> SEQUENCE_BITS, np.asarray(scopes, np.int64))
        sample = self._sample[mine] if mine.sum() >= LEAST_SAMPLE else self._sample
        cosines = sample @ asked
        return float(cosines.mean()), max(LEAST_SPREAD, float(cosines.std()))

    def _distances(
        self, asked: Floats, seen: Numbers
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        code = self._coded(asked[None, :])
        everything = len(seen) == len(self._memories)
        total = np.zeros(len(seen), np.int32)
        for word in range(self._words):
            column = self._codes[word] if everything else self._codes[word][seen]
            total += np.bitwise_count(column ^ code[word, 0])
        return total

    def _cosines(
        self, db: sqlite3.Connection, asked: Floats, memories: Sequence[int]
    ) -> dict[int, float]:
        found = list(_numbers(db, memories, self.model))
        if not found:
            return {}
        likeness = unpacked([numbers for _, numbers in found], self._dim) @ asked
        return dict(zip([n for n, _ in found], likeness.tolist(), strict=True))


def packed(vector: Vector) -> bytes:
    """A vector as it is kept."""
    return np.asarray(vector, dtype=np.float16).tobytes()


def unpacked(numbers: Sequence[bytes], dim: int) -> Floats:
    """Kept vectors as rows of a matrix."""
    return np.frombuffer(b"".join(numbers), np.float16).reshape(-1, dim).astype(np.float32)


def _numbers(
    db: sqlite3.Connection, memories: Sequence[int], model: int
) -> Iterable[tuple[int, bytes]]:
    for start in range(0, len(memories), 500):
        chunk = memories[start : start + 500]
        marks = ",".join("?" * len(chunk))
        yield from db.execute(
            f"SELECT n, numbers FROM vector WHERE n IN ({marks}) AND model = ?", (*chunk, model)
        )
