"""The ratings and thresholds that the machines of a team share."""

import json
from collections.abc import Mapping, Sequence

from upwell.ground.postgres.connection import Postgres, Rows, Statement
from upwell.ground.postgres.schema import ENSURE_TENANT
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.learn.feedback import (
    NEGATIVE,
    RATED,
    RETENTION_SECONDS,
    SAMPLE,
    Rated,
    ScoreSample,
    grouped,
    rated,
)

_ALIVE = "tenant = %(tenant)s AND NOT forgotten"
_ADD = """
    INSERT INTO upwell.feedback
        (tenant, surfacing, memory, rating, at, door, tool, score, signals)
    SELECT %(tenant)s, * FROM unnest(%(surfacing)s::text[], %(memory)s::text[],
        %(rating)s::text[], %(at)s::float8[], %(door)s::text[], %(tool)s::text[],
        %(score)s::float8[], %(signals)s::text[])
    ON CONFLICT (tenant, surfacing, memory) DO UPDATE SET rating = excluded.rating,
        at = excluded.at, door = excluded.door, tool = excluded.tool, score = excluded.score,
        signals = excluded.signals, forgotten = false"""
_SHIFT = """
    INSERT INTO upwell.threshold (tenant, tool, shift, at)
    SELECT %(tenant)s, tool, shift, %(at)s
    FROM unnest(%(tools)s::text[], %(shifts)s::float8[]) AS new(tool, shift)
    ON CONFLICT (tenant, tool) DO UPDATE SET shift = excluded.shift, at = excluded.at"""
_FORGET = f"""
    UPDATE upwell.feedback SET forgotten = true
    WHERE {_ALIVE} AND (%(memory)s::text IS NULL OR memory = %(memory)s) RETURNING 1"""
_CHANGED = "UPDATE upwell.tenant SET learned = learned + 1 WHERE tenant = %(tenant)s"


class PostgresRatings:
    """`LearningStore` in a team's database."""

    def __init__(self, postgres: Postgres, *, tenant: str = DEFAULT_TENANT) -> None:
        self._postgres = postgres
        self._tenant = tenant

    async def add(self, ratings: Sequence[Rated]) -> None:
        latest = {(rating.surfacing, rating.memory): rating for rating in ratings}
        rows = [latest[key] for key in sorted(latest)]
        columns: dict[str, list[object]] = {
            "surfacing": [rating.surfacing for rating in rows],
            "memory": [rating.memory for rating in rows],
            "rating": [str(rating.rating) for rating in rows],
            "at": [rating.at for rating in rows],
            "door": [str(rating.door) for rating in rows],
            "tool": [rating.tool for rating in rows],
            "score": [rating.score for rating in rows],
            "signals": [json.dumps(dict(rating.signals)) for rating in rows],
        }
        await self._change(Statement(_ADD, columns))

    async def valid(self) -> list[Rated]:
        sql = f"SELECT {RATED} FROM upwell.feedback WHERE {_ALIVE} ORDER BY at"
        return rated(await self._read(sql, {}))

    async def by_tool(self, since: float) -> dict[str, list[ScoreSample]]:
        sql = f"""SELECT tool, {SAMPLE} FROM upwell.feedback
            WHERE {_ALIVE} AND at >= %(since)s ORDER BY at"""
        return grouped(await self._read(sql, {"since": since}))

    async def against(self) -> dict[str, list[ScoreSample]]:
        sql = f"""SELECT memory, {SAMPLE} FROM upwell.feedback WHERE {_ALIVE} AND memory IN
            (SELECT memory FROM upwell.feedback WHERE {_ALIVE} AND rating = ANY(%(negative)s))
            ORDER BY at"""
        return grouped(await self._read(sql, {"negative": sorted(map(str, NEGATIVE))}))

    async def shifts(self) -> dict[str, tuple[float, float]]:
        sql = "SELECT tool, shift, at FROM upwell.threshold WHERE tenant = %(tenant)s"
        return {tool: (shift, at) for tool, shift, at in await self._read(sql, {})}

    async def shift(self, shifts: Mapping[str, float], at: float) -> None:
        tools = sorted(shifts)
        values = {"tools": tools, "shifts": [shifts[tool] for tool in tools], "at": at}
        await self._change(Statement(_SHIFT, values))

    async def version(self) -> int:
        rows = await self._read("SELECT learned FROM upwell.tenant WHERE tenant = %(tenant)s", {})
        return int(rows[0][0]) if rows else 0

    async def forget(self, memory: str | None = None) -> int:
        thresholds = Statement("DELETE FROM upwell.threshold WHERE tenant = %(tenant)s", {})
        forgotten = await self._change(
            Statement(_FORGET, {"memory": memory}), *([thresholds] if memory is None else [])
        )
        return len(forgotten)

    async def purge(self, now: float) -> int:
        sql = """DELETE FROM upwell.feedback WHERE tenant = %(tenant)s AND at < %(horizon)s
            RETURNING 1"""
        return len(await self._read(sql, {"horizon": now - RETENTION_SECONDS}))

    async def _read(self, sql: str, values: Mapping[str, object]) -> Rows:
        (rows,) = await self._postgres.ask(self._tenant, Statement(sql, values))
        return rows

    async def _change(self, *statements: Statement) -> Rows:
        """Run statements, and announce the change. Returns the rows of the first statement."""
        rows, *_ = await self._postgres.ask(
            self._tenant,
            *statements,
            Statement(ENSURE_TENANT, {"name": self._tenant}),
            Statement(_CHANGED, {}),
        )
        return rows
