"""What chance looks like in a store: its own measure of relevance, without labels.

A threshold found on some stores drifts on others (`docs/decisions.md`). So each store is asked
with queries that mean nothing, words drawn from memories that have nothing to do with each other,
and how well its best memory matches by chance is kept, by number of words. A real match is judged
by how far it stands above that.
"""

import math
import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from upwell.ground.db import Database
from upwell.ground.types import Scope
from upwell.memory.candidates import by_words, keeping
from upwell.memory.query import Corpus, corpus, read
from upwell.memory.rows import text_of, visible_scopes
from upwell.memory.schema import PROJECT_BITS, SEQUENCE_BITS
from upwell.memory.terms import query_words, sound

SIZES = (1, 2, 4, 8, 16)
SAMPLES = 30
LEAST = 20
"""Smaller stores have no chance worth measuring; they take what stores of the kind have."""
GROWTH = 1.5
"""It is measured anew when a store has grown by half."""
USUAL_MEAN = (0.72, 0.98, 1.25, 1.57, 2.06)
USUAL_SPREAD = (0.30, 0.22, 0.21, 0.24, 0.28)
"""By number of words, in units of the idf of a word that one memory holds: the means over the
development stores."""
_LOOKED_AT = 5
_TEXT_CHARS = 2_000

Score = Callable[[sqlite3.Connection, str, Corpus, Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Background:
    """Mean and spread of the best BM25 that unrelated queries of `SIZES` words get."""

    mean: tuple[float, ...]
    spread: tuple[float, ...]

    def at(self, words: float) -> tuple[float, float]:
        """Mean and spread for a query of so many known words."""
        place = math.log2(min(max(words, 1.0), float(SIZES[-1])))
        low = min(int(place), len(SIZES) - 2)
        share = place - low
        mean, spread = (
            figures[low] * (1.0 - share) + figures[low + 1] * share
            for figures in (self.mean, self.spread)
        )
        return mean, spread


def usual(within: Corpus) -> Background:
    """What stores of this size usually have."""
    unit = within.idf(1)
    return Background(
        tuple(unit * share for share in USUAL_MEAN), tuple(unit * share for share in USUAL_SPREAD)
    )


def key_of(db: sqlite3.Connection, scope: Scope) -> int | None:
    """Under which key the background of what this scope sees is kept: its project's number (that
    of the global one where the project has nothing yet), or, for a tenant's everything, one below
    zero. None where there is nothing at all."""
    rows: dict[str, int] = dict(
        db.execute("SELECT project, no FROM scope WHERE tenant = ?", (scope.tenant,)).fetchall()
        if scope.project is None
        else db.execute(
            "SELECT project, no FROM scope WHERE tenant = ? AND project IN ('', ?)",
            (scope.tenant, scope.project),
        ).fetchall()
    )
    if not rows:
        return None
    if scope.project is None:
        return -1 - (min(rows.values()) >> PROJECT_BITS)
    return rows.get(scope.project or "", rows.get(""))


def load(db: sqlite3.Connection, scope: Scope, within: Corpus) -> Background:
    """What was measured for what this scope sees, else what is usual."""
    rows = db.execute(
        "SELECT mean, spread FROM background WHERE key = ? ORDER BY words", (key_of(db, scope),)
    ).fetchall()
    if len(rows) != len(SIZES):
        return usual(within)
    return Background(tuple(row[0] for row in rows), tuple(row[1] for row in rows))


def is_due(db: sqlite3.Connection, scope: Scope) -> bool:
    """Has what this scope sees grown enough since it was measured?"""
    within = corpus(db, visible_scopes(db, scope))
    if within.memories < LEAST:
        return False
    row = db.execute(
        "SELECT max(memories) FROM background WHERE key = ?", (key_of(db, scope),)
    ).fetchone()
    return row[0] is None or within.memories > GROWTH * row[0]


async def measure(database: Database, scope: Scope, score: Score) -> None:
    """Find out what chance looks like here, in slices, so that searches go in between."""

    def draw(db: sqlite3.Connection) -> tuple[Corpus, list[list[str]]]:
        within = corpus(db, visible_scopes(db, scope))
        return within, sample_words(db, within, random.Random(within.memories))

    within, drawn = await database.read(draw)
    if not drawn:
        return
    figures = [
        await database.read(
            partial(by_chance, within=within, drawn=drawn, words=words, score=score)
        )
        for words in SIZES
    ]
    measured = Background(*zip(*figures, strict=True))
    await database.write(lambda db: keep(db, scope, within.memories, measured))


def sample_words(db: sqlite3.Connection, within: Corpus, rng: random.Random) -> list[list[str]]:
    """The words of some memories, drawn at random from what is visible."""
    marks = ",".join("?" * len(within.scopes))
    sizes = db.execute(
        f"SELECT no, last, memories FROM scope WHERE no IN ({marks}) AND memories > 0",
        within.scopes,
    ).fetchall()
    drawn: list[list[str]] = []
    for number, last, _ in rng.choices(sizes, [size[2] for size in sizes], k=4 * SAMPLES):
        low = number << SEQUENCE_BITS
        row = db.execute(
            "SELECT text FROM memory WHERE n BETWEEN ? AND ? ORDER BY n LIMIT 1",
            (low | rng.randint(1, last), low | last),
        ).fetchone()
        words = query_words(sound(text_of(row[0]))[:_TEXT_CHARS]) if row else []
        if words:
            drawn.append(words)
    return drawn


def by_chance(
    db: sqlite3.Connection, within: Corpus, drawn: Sequence[list[str]], words: int, score: Score
) -> tuple[float, float]:
    """Mean and spread of the best score of queries of `words` words that mean nothing."""
    rng = random.Random(words)
    best: list[float] = []
    for _ in range(SAMPLES):
        text = " ".join(rng.choice(rng.choice(drawn)) for _ in range(words))
        found = by_words(db, read(db, text, within), within, keeping(db), _LOOKED_AT)
        best.append(score(db, text, within, found))
    mean = sum(best) / len(best)
    return mean, max(0.1, math.sqrt(sum((score - mean) ** 2 for score in best) / len(best)))


def keep(db: sqlite3.Connection, scope: Scope, memories: int, measured: Background) -> None:
    """Remember what was measured when there were so many memories."""
    key = key_of(db, scope)
    db.execute("DELETE FROM background WHERE key = ?", (key,))
    db.executemany(
        "INSERT INTO background VALUES (?, ?, ?, ?, ?)",
        [
            (key, words, mean, spread, memories)
            for words, mean, spread in zip(SIZES, measured.mean, measured.spread, strict=True)
        ],
    )
