"""Measure and store the null scores of each scope (`memory/ranking/calibrate.py`)."""

import random
import sqlite3
from collections.abc import Iterable, Sequence
from functools import partial

from upwell.ground.project import owners_of
from upwell.ground.sqlite.database import Database
from upwell.ground.types.memory import Scope
from upwell.memory.lookups import SEQUENCE_BITS
from upwell.memory.ranking.calibrate import (
    BEST_OF,
    MAX_SAMPLE_CHARS,
    SAMPLES,
    SIZES,
    NullScores,
    is_due,
    mean_and_spread,
    random_queries,
    usual,
)
from upwell.memory.ranking.signals import best_bm25
from upwell.memory.ranking.terms import Corpus, query_words, sound
from upwell.memory.sqlite.lookup import by_words, candidates, corpus_seen_by, filter_of, read
from upwell.memory.sqlite.rows import marks, text_of
from upwell.memory.sqlite.schema import PROJECT_BITS


def key_of(db: sqlite3.Connection, scope: Scope, corpus: Corpus) -> int | None:
    """Return the key under which the null scores of `scope` are stored, or None if the corpus is
    empty. `corpus` describes the memories that the scope sees. The key is the number of the scope's
    project, or of the global project while the scope's project has no memories. For a whole tenant,
    the key is a negative number."""
    if not corpus.scopes:
        return None
    if scope.project is None:
        return -1 - (corpus.scopes[0] >> PROJECT_BITS)
    if len(corpus.scopes) == 1:
        return corpus.scopes[0]
    rows: dict[str, int] = dict(
        db.execute(
            f"SELECT project, no FROM scope WHERE no IN ({marks(corpus.scopes)})", corpus.scopes
        ).fetchall()
    )
    return next((rows[name] for name in owners_of(scope.project) if name in rows), None)


def load(db: sqlite3.Connection, scope: Scope, corpus: Corpus) -> NullScores:
    """Load the null scores that were measured for this scope, or return the usual ones if none have
    been measured."""
    rows = db.execute(
        "SELECT mean, spread FROM background WHERE key = ? ORDER BY words",
        (key_of(db, scope, corpus),),
    ).fetchall()
    if len(rows) != len(SIZES):
        return usual(corpus)
    return NullScores(tuple(float(row[0]) for row in rows), tuple(float(row[1]) for row in rows))


def due(db: sqlite3.Connection, scopes: Iterable[Scope]) -> list[Scope]:
    """Return the scopes to measure: those that have enough memories, and that were never measured
    or have grown by more than the factor `GROWTH` since the last measurement."""
    found = []
    for scope in scopes:
        corpus = corpus_seen_by(db, scope)
        sql = "SELECT max(memories) FROM background WHERE key = ?"
        (before,) = db.execute(sql, (key_of(db, scope, corpus),)).fetchone()
        if is_due(corpus.memories, before):
            found.append(scope)
    return found


async def measure(database: Database, scope: Scope) -> None:
    """Measure and store the null scores for the memories that this scope sees. Each size of query
    is measured in a separate read, so that searches can run in between."""

    def draw(db: sqlite3.Connection) -> tuple[Corpus, list[list[str]]]:
        corpus = corpus_seen_by(db, scope)
        return corpus, sample_words(db, corpus, random.Random(corpus.memories))

    corpus, samples = await database.read(draw)
    if not samples:
        return
    figures = [
        await database.read(partial(by_chance, corpus=corpus, samples=samples, words=words))
        for words in SIZES
    ]
    measured = NullScores(*zip(*figures, strict=True))
    await database.write(lambda db: store(db, key_of(db, scope, corpus), corpus.memories, measured))


def sample_words(db: sqlite3.Connection, corpus: Corpus, rng: random.Random) -> list[list[str]]:
    """Draw random memories from the corpus, and return the words of each."""
    sizes = db.execute(
        f"SELECT no, last, memories FROM scope WHERE no IN ({marks(corpus.scopes)}) "
        "AND memories > 0",
        corpus.scopes,
    ).fetchall()
    samples: list[list[str]] = []
    for number, last, _ in rng.choices(sizes, [size[2] for size in sizes], k=4 * SAMPLES):
        low = number << SEQUENCE_BITS
        row = db.execute(
            "SELECT text FROM memory WHERE n BETWEEN ? AND ? ORDER BY n LIMIT 1",
            (low | rng.randint(1, last), low | last),
        ).fetchone()
        words = query_words(sound(text_of(row[0]))[:MAX_SAMPLE_CHARS]) if row else []
        if words:
            samples.append(words)
    return samples


def by_chance(
    db: sqlite3.Connection, corpus: Corpus, samples: Sequence[list[str]], words: int
) -> tuple[float, float]:
    """Return the mean and spread of the best scores of random queries, each with this number of
    words."""
    scores: list[float] = []
    for text in random_queries(samples, words):
        lookup = read(db, text, corpus)
        numbers = by_words(db, lookup, corpus, filter_of(db), BEST_OF)
        found = candidates(db, numbers, lookup.reading.idf.keys())
        scores.append(best_bm25(lookup.reading, corpus, found.values()))
    return mean_and_spread(scores)


def store(db: sqlite3.Connection, key: int | None, memories: int, measured: NullScores) -> None:
    db.execute("DELETE FROM background WHERE key = ?", (key,))
    db.executemany(
        "INSERT INTO background VALUES (?, ?, ?, ?, ?)",
        [
            (key, words, mean, spread, memories)
            for words, mean, spread in zip(SIZES, measured.mean, measured.spread, strict=True)
        ],
    )
