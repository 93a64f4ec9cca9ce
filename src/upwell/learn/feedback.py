"""What agents and users said of surfacings, and the thresholds that follow: tables in `memory.db`.

Each rating keeps what was surfaced with it (tool, door, score, signals), since the journal it was
surfaced from is disposable and this is not.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upwell.ground.db import Database, Owner
from upwell.ground.types import DEFAULT_TENANT, Rating
from upwell.learn.thresholds import Sample

KEPT_SECONDS = 365 * 86_400.0
"""A rating older than a year says nothing about today's store."""
WINDOW_SECONDS = 120 * 86_400.0
"""Thresholds look back four half-lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """One memory of one surfacing, and what was said of it. `tool` is the tool beside whose result
    it was said, or the door where there was none."""

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
_SAMPLE = "surfacing, memory, rating, score, at"


class Ratings:
    """The tables of one tenant. Every method raises StoreError when the database fails."""

    def __init__(self, database: Database, *, tenant: str = DEFAULT_TENANT) -> None:
        self._database = database
        self._tenant = tenant

    async def add(self, rated: Sequence[Rated]) -> None:
        """Keep them; of a memory in a surfacing the later rating replaces the earlier."""
        rows = [
            (
                self._tenant,
                one.surfacing,
                one.memory,
                str(one.rating),
                one.at,
                one.door,
                one.tool,
                one.score,
                json.dumps(dict(one.signals)),
            )
            for one in rated
        ]

        def keep(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT OR REPLACE INTO feedback (tenant, surfacing, memory, rating, at, door, "
                "tool, score, signals) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

        await self._database.write(keep)

    async def by_tool(self, since: float) -> dict[str, list[Sample]]:
        """The samples of every tool that count, oldest first."""

        rows = await self._database.read(
            lambda db: db.execute(
                f"SELECT tool, {_SAMPLE} FROM feedback "
                "WHERE tenant = ? AND at >= ? AND NOT forgotten ORDER BY at",
                (self._tenant, since),
            ).fetchall()
        )
        return _grouped(rows)

    async def against(self) -> dict[str, list[Sample]]:
        """The samples of every memory that has a negative one, oldest first."""

        rows = await self._database.read(
            lambda db: db.execute(
                f"SELECT memory, {_SAMPLE} FROM feedback "
                "WHERE tenant = ? AND NOT forgotten AND memory IN (SELECT memory FROM feedback "
                "WHERE tenant = ? AND NOT forgotten AND rating IN (?, ?)) ORDER BY at",
                (self._tenant, self._tenant, str(Rating.NOT_RELEVANT), str(Rating.ALREADY_KNOWN)),
            ).fetchall()
        )
        return _grouped(rows)

    async def shifts(self) -> dict[str, tuple[float, float]]:
        """Each tool's shift of its threshold in log-odds, and when it was last moved."""
        found = await self._database.read(
            lambda db: db.execute(
                "SELECT tool, shift, at FROM threshold WHERE tenant = ?", (self._tenant,)
            ).fetchall()
        )
        return {tool: (shift, at) for tool, shift, at in found}

    async def shift(self, shifts: Mapping[str, float], at: float) -> None:
        """Move these tools' thresholds to these shifts."""
        rows = [(self._tenant, tool, shift, at) for tool, shift in shifts.items()]

        def move(db: sqlite3.Connection) -> None:
            db.executemany("INSERT OR REPLACE INTO threshold VALUES (?, ?, ?, ?)", rows)

        await self._database.write(move)

    async def version(self) -> tuple[int, int]:
        """Differs from last time when somebody has written to the file."""
        return await self._database.data_version()

    async def forget(self, memory: str | None = None) -> int:
        """Let ratings count no more: one memory's, or all, and then the thresholds go too. Gives
        how many ratings it was."""

        def let_go(db: sqlite3.Connection) -> int:
            if memory is None:
                db.execute("DELETE FROM threshold WHERE tenant = ?", (self._tenant,))
            return db.execute(
                "UPDATE feedback SET forgotten = 1 WHERE tenant = ? AND NOT forgotten "
                "AND (? IS NULL OR memory = ?)",
                (self._tenant, memory, memory),
            ).rowcount

        return await self._database.write(let_go)

    async def purge(self, now: float) -> int:
        """Remove what is too old to say anything. Gives how many ratings it was."""
        horizon = (self._tenant, now - KEPT_SECONDS)
        statement = "FROM feedback WHERE tenant = ? AND at < ?"
        old = await self._database.read(
            lambda db: db.execute(f"SELECT 1 {statement} LIMIT 1", horizon).fetchone()
        )
        if old is None:
            return 0
        return await self._database.write(
            lambda db: db.execute(f"DELETE {statement}", horizon).rowcount
        )


def _grouped(rows: Sequence[tuple[str, str, str, str, float, float]]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for name, surfacing, memory, rating, score, at in rows:
        sample = Sample(
            surfacing=surfacing, memory=memory, verdict=Rating(rating), score=score, at=at
        )
        found.setdefault(name, []).append(sample)
    return found
