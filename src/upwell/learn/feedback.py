"""Ratings of shown memories, and the thresholds that follow from them: tables in `memory.db`, or in
a team's database (`learn/postgres.py`).

A rating contains the circumstances in which the memory surfaced (tool, door, score, signals),
because the journal may lose them.

A threshold is the score that a memory needs to surface for one tool: `min_score`, adjusted to how
useful earlier memories were for that tool. The score of a memory is a calibrated probability `p`
that it is relevant. Feedback shows whether `p` is too high or too low for this tool. An intercept
`b` on the log-odds is fitted to the feedback, and `min_score` is shifted by `-b`. So a tool whose
scores promise too much gets a higher threshold. The fit is a logistic regression with one
coefficient and a Gaussian prior of mean 0 and variance 1 (maximum a posteriori). Evidence fades
with a half-life, so without new evidence every threshold returns to its configured value.

The thresholds and the demotion of memories are pure functions over samples of evidence. The ratings
and their tables follow.
"""

import json
import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct, field

from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.types.cue import Rating
from upwell.ground.types.memory import DEFAULT_TENANT

MIN_SAMPLES = 10
"""A threshold changes only after this many surfacings with evidence."""
LOWEST_SHIFT, HIGHEST_SHIFT = -0.5, 1.0
"""The bounds of a shift, in log-odds. They keep a threshold of 0.50 between 0.38 and 0.73. The
lower bound is closer to 0, because there is no feedback on memories that a lower threshold would
have shown."""
MIN_SCORE, MAX_SCORE = 0.05, 0.95
STEP = 0.2
"""The largest move in one step, in log-odds: about 0.05 for a threshold of 0.50."""
IMPLICIT_SHIFT = 0.3
"""Observed use changes the shift that follows from ratings by at most this much, in log-odds."""
HALF_LIFE_SECONDS = 30 * 86_400.0
MAX_SAMPLES = 300
"""Only this many of the latest ratings count, and as many of the latest observations. Older ones
have faded."""
_PRIOR_PRECISION = 1.0
_NEUTRAL_PRECISION = 0.25


class MemoryUse(StrEnum):
    """The observed use of a memory by an agent."""

    USED = "used"
    IGNORED = "ignored"


Evidence = Rating | MemoryUse

_WEIGHTS: Mapping[Evidence, tuple[float, float]] = {
    Rating.HELPFUL: (1.0, 1.0),
    Rating.NOT_RELEVANT: (0.0, 1.0),
    Rating.ALREADY_KNOWN: (0.0, 0.5),
    MemoryUse.USED: (1.0, 0.25),
    MemoryUse.IGNORED: (0.0, 0.02),
}
"""Maps each kind of evidence to a relevance and a weight. An already known memory was relevant and
still a nuisance, so it counts half. Even a helpful memory usually leaves no trace in the next
calls, so an ignored memory weighs a twelfth as much as a used one: the two balance if about one
memory in thirteen is used. `partially_helpful` is neutral: it pulls the threshold towards its
configured value."""


class ScoreSample(Struct, frozen=True, kw_only=True):
    """The evidence about one surfaced memory, and the score that it had."""

    surfacing: str
    memory: str
    evidence: Evidence
    score: float
    at: float


class Threshold(Struct, frozen=True, kw_only=True):
    """One tool's threshold: the `min_score` in use, the one that the evidence suggests
    (`suggested`), the number of surfacings with evidence (`samples`), and the number of samples of
    each kind (`evidence`)."""

    tool: str
    min_score: float
    suggested: float
    samples: int
    evidence: Mapping[str, int]

    @property
    def why(self) -> str:
        """The evidence and its tendency, in words."""
        counted = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.evidence.items())
        if self.samples < MIN_SAMPLES:
            return f"{counted or 'no ratings'}; tuning needs {MIN_SAMPLES} surfacings"
        moved = round(self.suggested, 2) - round(self.min_score, 2)
        trend = "rising" if moved > 0 else "falling" if moved < 0 else "steady"
        return f"{counted}; {trend}"


def shifted(base: float, shift: float) -> float:
    """`base` moved by `shift` log-odds, within bounds. 0 (always) and 1 (never) do not move."""
    if not 0.0 < base < 1.0:
        return base
    moved = _sigmoid(_logit(base) + min(HIGHEST_SHIFT, max(LOWEST_SHIFT, shift)))
    return min(max(MAX_SCORE, base), max(min(MIN_SCORE, base), moved))


def target_shift(samples: Sequence[ScoreSample], now: float) -> float:
    """The shift that fits the evidence. 0 while there are too few surfacings."""
    if count(samples) < MIN_SAMPLES:
        return 0.0
    rated = _latest(sample for sample in samples if isinstance(sample.evidence, Rating))
    observed = _latest(sample for sample in samples if isinstance(sample.evidence, MemoryUse))
    explicit_shift = _within(-_intercept(rated, now))
    shift = _within(-_intercept([*rated, *observed], now))
    return min(explicit_shift + IMPLICIT_SHIFT, max(explicit_shift - IMPLICIT_SHIFT, shift))


def stepped(shift: float, target: float) -> float:
    """`shift` moved towards `target`, by at most one step."""
    return shift + min(STEP, max(-STEP, target - shift))


def count(samples: Iterable[ScoreSample]) -> int:
    """The number of surfacings with evidence."""
    return len({sample.surfacing for sample in samples})


def counted(samples: Iterable[ScoreSample]) -> dict[str, int]:
    """The number of samples for each kind of evidence, keyed by its name."""
    numbers = Counter(str(sample.evidence) for sample in samples)
    order = [str(kind) for kind in (*Rating, *MemoryUse)]
    return {name: numbers[name] for name in order if numbers[name]}


def _latest(samples: Iterable[ScoreSample]) -> list[ScoreSample]:
    return sorted(samples, key=lambda sample: sample.at)[-MAX_SAMPLES:]


def _intercept(samples: Sequence[ScoreSample], now: float) -> float:
    """The intercept that maximises the penalised likelihood. The slope of the likelihood decreases
    monotonically, so bisection finds where it is 0."""
    together = Counter(sample.surfacing for sample in samples)
    precision = _PRIOR_PRECISION
    weighed: list[tuple[float, float, float]] = []
    for sample in samples:
        age = max(0.0, now - sample.at)
        share = 0.5 ** (age / HALF_LIFE_SECONDS) / together[sample.surfacing]
        if sample.evidence not in _WEIGHTS:
            precision += _NEUTRAL_PRECISION * share
            continue
        relevant, weight = _WEIGHTS[sample.evidence]
        weighed.append((_logit(min(0.99, max(0.01, sample.score))), relevant, weight * share))
    low, high = -10.0, 10.0
    for _ in range(24):
        b = (low + high) / 2
        slope = sum(w * (y - _sigmoid(z + b)) for z, y, w in weighed) - precision * b
        low, high = (b, high) if slope > 0 else (low, b)
    return (low + high) / 2


def _within(shift: float) -> float:
    return min(HIGHEST_SHIFT, max(LOWEST_SHIFT, shift))


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(x / 2.0))


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
"""Thresholds use evidence up to this age, four half-lives (`HALF_LIFE_SECONDS`)."""


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
RATED = "surfacing, memory, rating, at, door, tool, score, signals"
"""The columns of a rating."""
_VALID = "tenant = ? AND NOT forgotten"
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
        insert = (
            f"INSERT OR REPLACE INTO feedback (tenant, {RATED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        await self._database.write(lambda db: db.executemany(insert, rows))

    async def valid(self) -> list[Rated]:
        return rated(
            await self._read(f"SELECT {RATED} FROM feedback WHERE {_VALID} ORDER BY at", ())
        )

    async def by_tool(self, since: float) -> dict[str, list[ScoreSample]]:
        sql = f"SELECT tool, {SAMPLE} FROM feedback WHERE {_VALID} AND at >= ? ORDER BY at"
        return grouped(await self._read(sql, (since,)))

    async def against(self) -> dict[str, list[ScoreSample]]:
        sql = (
            f"SELECT memory, {SAMPLE} FROM feedback WHERE {_VALID} AND memory IN "
            f"(SELECT memory FROM feedback WHERE {_VALID} AND rating IN (?, ?)) ORDER BY at"
        )
        return grouped(await self._read(sql, (DEFAULT_TENANT, *sorted(map(str, NEGATIVE)))))

    async def shifts(self) -> dict[str, tuple[float, float]]:
        rows = await self._read("SELECT tool, shift, at FROM threshold WHERE tenant = ?", ())
        return {tool: (shift, at) for tool, shift, at in rows}

    async def _read(self, sql: str, values: Sequence[object]) -> list[Any]:
        """Run a query whose first value is the tenant."""
        return await self._database.read(
            lambda db: db.execute(sql, (DEFAULT_TENANT, *values)).fetchall()
        )

    async def shift(self, shifts: Mapping[str, float], at: float) -> None:
        rows = [(DEFAULT_TENANT, tool, shift, at) for tool, shift in shifts.items()]
        move = "INSERT OR REPLACE INTO threshold VALUES (?, ?, ?, ?)"
        await self._database.write(lambda db: db.executemany(move, rows))

    async def version(self) -> tuple[int, int]:
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
        horizon = now - RETENTION_SECONDS
        expired = "FROM feedback WHERE tenant = ? AND at < ?"
        if not await self._read(f"SELECT 1 {expired} LIMIT 1", (horizon,)):
            return 0
        return await self._database.write(
            lambda db: db.execute(f"DELETE {expired}", (DEFAULT_TENANT, horizon)).rowcount
        )


_RATINGS = frozenset(map(str, Rating))


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
