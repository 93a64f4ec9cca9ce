"""Ratings of shown memories, and the thresholds that follow from them: tables in `memory.db`, or in
a team's database (`learn/postgres.py`).

A rating contains the circumstances in which the memory surfaced (tool, door, score, signals),
because the journal may lose them.
"""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.ground.types.surfacing import Rating
from upwell.learn.thresholds import MemoryUse, ScoreSample

NEGATIVE = frozenset({Rating.NOT_RELEVANT, Rating.ALREADY_KNOWN})
IGNORED_WEIGHT = 0.25
MAX_IGNORED = 1.0
"""The maximum evidence from agents ignoring a memory. Being ignored four times weighs as much as
one rating; after that, nothing more is added."""


def negatives(samples: Iterable[ScoreSample]) -> float:
    """The evidence against a memory, given one sample for each time it surfaced."""
    against = ignored = 0.0
    for sample in sorted(samples, key=lambda sample: sample.at):
        if sample.evidence in NEGATIVE:
            against += 1.0
        elif sample.evidence is Rating.HELPFUL:
            against = max(0.0, against - 1.0)
        elif sample.evidence is MemoryUse.IGNORED:
            ignored = min(MAX_IGNORED, ignored + IGNORED_WEIGHT)
        elif sample.evidence is MemoryUse.USED:
            ignored = 0.0
    return against + ignored


RETENTION_SECONDS = 365 * 86_400.0
"""How long ratings are kept. Older ratings say nothing about today's memories."""
WINDOW_SECONDS = 120 * 86_400.0
"""Thresholds use evidence up to this age, four half-lives (`thresholds.HALF_LIFE_SECONDS`)."""


class Rated(Struct, frozen=True, kw_only=True):
    """The rating of one memory in one surfacing. `tool` is the tool whose call made the memory
    surface, or the `door` again if there was no tool."""

    surfacing: str
    memory: str
    rating: Rating
    at: float
    door: str
    tool: str
    score: float
    signals: Mapping[str, float] = field(default_factory=dict)


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE feedback (
            tenant TEXT NOT NULL, surfacing TEXT NOT NULL, memory TEXT NOT NULL,
            rating TEXT NOT NULL, at REAL NOT NULL, door TEXT NOT NULL, tool TEXT NOT NULL,
            score REAL NOT NULL, signals TEXT NOT NULL, forgotten INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (tenant, surfacing, memory)) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX feedback_tool ON feedback (tenant, tool, at)")
    db.execute("CREATE INDEX feedback_memory ON feedback (tenant, memory)")
    db.execute(
        """CREATE TABLE threshold (
            tenant TEXT NOT NULL, tool TEXT NOT NULL, shift REAL NOT NULL, at REAL NOT NULL,
            PRIMARY KEY (tenant, tool)) WITHOUT ROWID"""
    )


OWNER = Owner("feedback", [_create])
SAMPLE = "surfacing, memory, rating, score, at"
"""The columns of a `ScoreSample`."""
_RATER = " @"


def of_rater(name: str, principal: str) -> str:
    """The key for a tool or memory in a principal's ratings, which affect only that principal. In
    the owner's ratings, it is the plain name."""
    return f"{name}{_RATER}{principal}" if principal else name


def without_rater(name: str) -> str:
    """The plain name of a tool or a memory."""
    return name.partition(_RATER)[0]


class LearningStore(Protocol):
    """The ratings and thresholds of one tenant. Every method raises StoreError if the database
    fails."""

    async def add(self, ratings: Sequence[Rated]) -> None:
        """Store ratings. A later rating of the same memory and surfacing replaces an earlier
        one."""
        ...

    async def by_tool(self, since: float) -> dict[str, list[ScoreSample]]:
        """Each tool's valid samples, oldest first."""
        ...

    async def valid(self) -> list[Rated]:
        """Every rating that has not been invalidated, oldest first."""
        ...

    async def against(self) -> dict[str, list[ScoreSample]]:
        """The valid samples of every memory that has a negative one, oldest first."""
        ...

    async def shifts(self) -> dict[str, tuple[float, float]]:
        """The shift of each tool's threshold, in log-odds, and the time of its last change."""
        ...

    async def shift(self, shifts: Mapping[str, float], at: float) -> None:
        """Set the shifts of these tools' thresholds."""
        ...

    async def version(self) -> Hashable:
        """A value that changes when any process changes ratings or thresholds. `purge()` may leave
        it as it is."""
        ...

    async def forget(self, memory: str | None = None) -> int:
        """Invalidate the ratings of `memory`. Without `memory`, invalidate all ratings and delete
        all thresholds. Returns the number of invalidated ratings.
        """
        ...

    async def purge(self, now: float) -> int:
        """Remove ratings past their retention. Returns how many were removed."""
        ...


async def copy_ratings(source: LearningStore, target: LearningStore) -> int:
    """Copy the valid ratings of `source` that are not valid ratings of `target`, and the thresholds
    that `target` lacks or that changed more recently in `source`. Returns the number of copied
    ratings.

    Raises:
        StoreError: a store failed. The next call copies what is still missing.
    """
    present = {(rating.surfacing, rating.memory) for rating in await target.valid()}
    missing = [
        rating
        for rating in await source.valid()
        if (rating.surfacing, rating.memory) not in present
    ]
    if missing:
        await target.add(missing)
    known = await target.shifts()
    moved: dict[float, dict[str, float]] = defaultdict(dict)
    for tool, (shift, at) in (await source.shifts()).items():
        if tool not in known or known[tool][1] < at:
            moved[at][tool] = shift
    for at, shifts in moved.items():
        await target.shift(shifts, at)
    return len(missing)


class Ratings:
    """`LearningStore` in `memory.db`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, ratings: Sequence[Rated]) -> None:
        rows = [
            (
                DEFAULT_TENANT,
                rating.surfacing,
                rating.memory,
                str(rating.rating),
                rating.at,
                rating.door,
                rating.tool,
                rating.score,
                json.dumps(dict(rating.signals)),
            )
            for rating in ratings
        ]

        def insert(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT OR REPLACE INTO feedback (tenant, surfacing, memory, rating, at, door, "
                "tool, score, signals) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

        await self._database.write(insert)

    async def valid(self) -> list[Rated]:
        rows = await self._database.read(
            lambda db: db.execute(
                f"SELECT {RATED} FROM feedback WHERE tenant = ? AND NOT forgotten ORDER BY at",
                (DEFAULT_TENANT,),
            ).fetchall()
        )
        return rated(rows)

    async def by_tool(self, since: float) -> dict[str, list[ScoreSample]]:
        rows = await self._database.read(
            lambda db: db.execute(
                f"SELECT tool, {SAMPLE} FROM feedback "
                "WHERE tenant = ? AND at >= ? AND NOT forgotten ORDER BY at",
                (DEFAULT_TENANT, since),
            ).fetchall()
        )
        return grouped(rows)

    async def against(self) -> dict[str, list[ScoreSample]]:
        rows = await self._database.read(
            lambda db: db.execute(
                f"SELECT memory, {SAMPLE} FROM feedback "
                "WHERE tenant = ? AND NOT forgotten AND memory IN (SELECT memory FROM feedback "
                "WHERE tenant = ? AND NOT forgotten AND rating IN (?, ?)) ORDER BY at",
                (
                    DEFAULT_TENANT,
                    DEFAULT_TENANT,
                    str(Rating.NOT_RELEVANT),
                    str(Rating.ALREADY_KNOWN),
                ),
            ).fetchall()
        )
        return grouped(rows)

    async def shifts(self) -> dict[str, tuple[float, float]]:
        rows = await self._database.read(
            lambda db: db.execute(
                "SELECT tool, shift, at FROM threshold WHERE tenant = ?", (DEFAULT_TENANT,)
            ).fetchall()
        )
        return {tool: (shift, at) for tool, shift, at in rows}

    async def shift(self, shifts: Mapping[str, float], at: float) -> None:
        rows = [(DEFAULT_TENANT, tool, shift, at) for tool, shift in shifts.items()]

        def move(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO threshold VALUES (?, ?, ?, ?)", rows)

        await self._database.write(move)

    async def version(self) -> tuple[int, int]:
        """A value that changes when any process writes to the file."""
        return await self._database.data_version()

    async def forget(self, memory: str | None = None) -> int:
        def invalidate(db: sqlite3.Connection) -> int:
            if memory is None:
                db.execute("DELETE FROM threshold WHERE tenant = ?", (DEFAULT_TENANT,))
            return db.execute(
                "UPDATE feedback SET forgotten = 1 WHERE tenant = ? AND NOT forgotten "
                "AND (? IS NULL OR memory = ?)",
                (DEFAULT_TENANT, memory, memory),
            ).rowcount

        return await self._database.write(invalidate)

    async def purge(self, now: float) -> int:
        values = (DEFAULT_TENANT, now - RETENTION_SECONDS)
        expired = "FROM feedback WHERE tenant = ? AND at < ?"
        old = await self._database.read(
            lambda db: db.execute(f"SELECT 1 {expired} LIMIT 1", values).fetchone()
        )
        if old is None:
            return 0
        return await self._database.write(
            lambda db: db.execute(f"DELETE {expired}", values).rowcount
        )


_RATINGS = frozenset(map(str, Rating))
RATED = "surfacing, memory, rating, at, door, tool, score, signals"
"""The columns of a rating."""


def rated(rows: Sequence[Sequence[Any]]) -> list[Rated]:
    """The ratings in rows that have the columns of `RATED`."""
    return [
        Rated(
            surfacing=surfacing,
            memory=memory,
            rating=Rating(rating),
            at=at,
            door=door,
            tool=tool,
            score=score,
            signals=json.loads(signals),
        )
        for surfacing, memory, rating, at, door, tool, score, signals in rows
        if rating in _RATINGS
    ]


def grouped(rows: Sequence[Sequence[Any]]) -> dict[str, list[ScoreSample]]:
    """The samples in rows, grouped by name. A row has a name, then the columns of `SAMPLE`."""
    samples: dict[str, list[ScoreSample]] = {}
    for name, surfacing, memory, rating, score, at in rows:
        if rating not in _RATINGS:
            continue  # a damaged row
        sample = ScoreSample(
            surfacing=surfacing, memory=memory, evidence=Rating(rating), score=score, at=at
        )
        samples.setdefault(name, []).append(sample)
    return samples
