"""The rows of the table `event` in `ledger.db` (`Events`): decisions, shortened results, and
figures of events that are not listed one by one. The latter say what happened how often, by UTC day
and place; they are counted in memory and stored in batches (`Counts`).

The `door` says what upwell reacted to: a prompt, a tool call, the start of a session or an explicit
question.
"""

import hashlib
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.ledger import FIGURES, PLACE, TtlStore
from upwell.ground.trace import LOG

RETENTION_SECONDS = 90 * 86_400.0
CUT_SECONDS = 30 * 86_400.0
MAX_EVENTS = 100_000
"""How many events are listed one by one. Of the others, only the figures are kept."""
CUT = "compressed"
"""The kind of a shortened result. Any other event that is listed is a decision."""
_DAY = "date(at, 'unixepoch')"


class EventRow(Struct, frozen=True, kw_only=True):
    """A row, in the order of its columns. `data` is JSON with everything that is not searched;
    without it, the row has only figures. `file`, `step` and `queries` may be readable texts of the
    user, so they are cleared earlier than the rest."""

    id: str
    kind: str
    at: float
    written: float = 0.0
    host: str = ""
    project: str = ""
    session: str = ""
    door: str = ""
    tool: str = ""
    outcome: str = ""
    times: int = 0
    memories: int = 0
    tokens: int = 0
    before: int = 0
    after: int = 0
    late: int = 0
    file: str | None = None
    step: str | None = None
    queries: str | None = None
    data: str | None = None


_MARKS = ", ".join("?" * len(EventRow.__struct_fields__))
_SUMS = ", ".join(f"{name} = {name} + excluded.{name}" for name in FIGURES)


class Events:
    """Reads and writes the rows. Every method raises StoreError if the database fails."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = ttl_store.database
        self._clock = clock

    async def put(self, events: Sequence[EventRow]) -> None:
        """Write events, each in place of an earlier one with the same id."""
        rows = self._rows(events)
        sql = f"INSERT OR REPLACE INTO event VALUES ({_MARKS})"
        await self._database.write_grouped(lambda db: db.executemany(sql, rows))

    async def add(self, figures: Sequence[EventRow]) -> None:
        rows = self._rows(figures)
        sql = f"INSERT INTO event VALUES ({_MARKS}) ON CONFLICT (id) DO UPDATE SET {_SUMS}"
        await self._database.write_grouped(lambda db: db.executemany(sql, rows))

    async def find(self, key: str) -> EventRow | None:
        return next(iter(await self._listed("id = ?", [key], 1, inline=True)), None)

    async def cut_of(self, key: str) -> EventRow | None:
        """The latest shortened result with this key of an original; None if there is none."""
        where = f"kind = '{CUT}' AND instr(data, ?)"
        return next(iter(await self._listed(where, [f'"{key}"'], 1)), None)

    async def latest(
        self,
        limit: int,
        *,
        kind: str = "",
        before: float = math.inf,
        after: float = -math.inf,
        matching: Mapping[str, str] | None = None,
        file: str = "",
        spoke: bool = False,
    ) -> list[EventRow]:
        """The latest events that were written between `after` and `before`, newest first.
        `matching` maps columns to the exact values required, and `file` is a part of the path. With
        `spoke`, only the events in which a memory surfaced or a result was shortened."""
        exact = {"kind": kind, **(matching or {})} if kind else dict(matching or {})
        conditions = [
            "written < ?",
            "written > ?",
            *(f"{name} = ?" for name in exact),
            *(["instr(lower(file), ?)"] if file else []),
            *([f"(outcome = 'surfaced' OR kind = '{CUT}')"] if spoke else []),
        ]
        values = [before, after, *exact.values(), *([file.lower()] if file else [])]
        return await self._listed(" AND ".join(conditions), values, limit)

    async def figures(self, since: float) -> list[tuple[Any, ...]]:
        """The sums of `FIGURES` since a time, for each day and each place without its session."""
        place = ", ".join(name for name in PLACE if name != "session")
        sums = ", ".join(f"sum({name})" for name in FIGURES)
        sql = (
            f"SELECT {_DAY}, {place}, {sums} FROM event WHERE written >= ? AND at >= ? "
            f"GROUP BY CAST(at / 86400 AS INTEGER), {place}"
        )
        return await self._database.read(lambda db: db.execute(sql, (since, since)).fetchall())

    async def sessions(self, since: float) -> list[str]:
        sql = (
            "SELECT DISTINCT session FROM event WHERE written >= ? AND at >= ? AND session != '' "
            "AND kind = 'decision'"
        )
        return await self._database.read(
            lambda db: [session for (session,) in db.execute(sql, (since, since))]
        )

    async def clear_texts(self, before: float, tools: Sequence[str]) -> int:
        """Clear the texts of the events that were written before `before`, and the readable texts
        of these tools ("" for messages). Returns the number of events that had such texts."""
        marks = ", ".join("?" * len(tools))
        sql = (
            "UPDATE event SET file = NULL, step = NULL, queries = NULL WHERE "
            "coalesce(file, step, queries) IS NOT NULL AND (written <= ? OR "
            f"(tool IN ({marks}) AND (coalesce(file, step) IS NOT NULL "
            "OR queries NOT LIKE '[\"sha256:%')))"
        )
        return await self._database.write_grouped(
            lambda db: db.execute(sql, (before, *tools)).rowcount
        )

    async def tools(self) -> list[str]:
        sql = "SELECT DISTINCT tool FROM event"
        return await self._database.read(lambda db: [tool for (tool,) in db.execute(sql)])

    async def expire(self) -> None:
        """Remove events past their retention. Of the oldest beyond `MAX_EVENTS`, only the figures
        stay."""
        now = self._clock.now()

        def work(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM event WHERE at < ?", (now - RETENTION_SECONDS,))
            _fold(db, f"kind = '{CUT}' AND written < ?", now - CUT_SECONDS)
            row = db.execute(
                "SELECT written FROM event WHERE data IS NOT NULL "
                "ORDER BY written DESC LIMIT 1 OFFSET ?",
                (MAX_EVENTS,),
            ).fetchone()
            if row:
                _fold(db, "written <= ?", row[0])

        await self._database.write_grouped(work)

    def _rows(self, events: Sequence[EventRow]) -> list[tuple[object, ...]]:
        now = self._clock.now()
        return [
            tuple(
                value.encode(errors="replace").decode() if isinstance(value, str) else value
                for value in astuple(replace(event, written=now))
            )
            for event in events
        ]

    async def _listed(
        self, where: str, values: Sequence[object], limit: int, *, inline: bool = False
    ) -> list[EventRow]:
        def look(db: sqlite3.Connection) -> list[EventRow]:
            rows = db.execute(
                f"SELECT * FROM event WHERE {where} AND data IS NOT NULL AND at > ? "
                "ORDER BY written DESC, at DESC LIMIT ?",
                (*values, self._clock.now() - RETENTION_SECONDS, limit),
            )
            return [EventRow(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]

        read = self._database.inline_read if inline else self._database.read
        return await read(look)


_COLUMNS = EventRow.__struct_fields__


def _fold(db: sqlite3.Connection, where: str, value: float) -> None:
    """Replace listed events by one row for each day and place, with the sums of their figures."""
    place, figures = ", ".join(PLACE), ", ".join(FIGURES)
    name = " || char(9) || ".join((_DAY, *PLACE))
    sums = ", ".join(f"sum({figure})" for figure in FIGURES)
    chosen = f"FROM event WHERE data IS NOT NULL AND {where}"
    db.execute(
        f"INSERT INTO event (id, at, written, {place}, {figures}) "
        f"SELECT {name}, min(at), max(written), {place}, {sums} {chosen} "
        f"GROUP BY {_DAY}, {place} ON CONFLICT (id) DO UPDATE SET {_SUMS}",
        (value,),
    )
    db.execute(f"DELETE {chosen}", (value,))


_DAY_SECONDS = 86_400.0
_SESSION_DIGEST_CHARS = 12
_MAX_NAME_CHARS = 300


class CountedEvent(StrEnum):
    DECISION = "decision"
    """`kind` is `surfaced`, or the reason why no memory was surfaced."""
    SAID = "said"
    """Surfaced memories. `kind` is `memories` (their number) or `tokens` (of their texts)."""
    SESSION = "session"
    """A decision in a session. `kind` is a digest of the session's name."""
    LATE = "late"
    """A decision whose memories did not reach the agent with the call that led to it. `kind` is
    `missed` (not ready when the call returned), `no_reply` (the call failed, or its reply was not
    delivered), or `offered` (offered again with a later call).
    """
    MISSING = "missing"
    """A search in which a store of memories failed. `kind` is the name of the store."""
    USE = "use"
    """Whether the agent used a surfaced memory. `kind` is `used` or `ignored`."""
    RATING = "rating"
    JUDGE = "judge"
    """The judge, a model that may choose the memories. Each question counts as `asked`, and its
    outcome as `chosen`, `nothing`, `failed` or `unusable`. `cached` and `capped` count events for
    which the model was not asked, and `late` counts choices that were kept for a later event.
    `tokens_in`, `tokens_out` and `millionths` (of the currency) are the cost."""
    LESSON = "lesson"
    """The model that writes lessons. `kind` is `asked`, `failed`, `kept`, `replaced`, `taken_back`,
    `confirmed`, `dropped_…` (a lesson that did not pass, with the reason), or the cost as for the
    judge."""
    INTENT = "intent"
    """A question to the language model about a prompt (`intent.use_llm`). `kind` is `answered`,
    `timeout`, `failed` or `unusable`."""
    COMPRESSED = "compressed"
    """`kind` is `results`, `tokens_before` or `tokens_saved`."""
    READ_AGAIN = "read_again"
    """Tokens of originals that an agent read after it had received the shortened result."""
    TOOL_TOKENS = "tool_tokens"
    """Tokens of the descriptions of upwell's own tools, once for each session that listed them."""


class Count(Struct, frozen=True):
    """How many times an event happened on one day in one place. Unknown parts of the place are
    ""."""

    day: str
    event: CountedEvent
    door: str
    tool: str
    kind: str
    number: int
    host: str = ""
    project: str = ""


class Counts:
    """The stored counters, and those of this process that are not stored yet. Decisions and
    shortened results are not counted here: they are counted from their rows."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._events = Events(ttl_store, clock)
        self._clock = clock
        self._pending: Counter[tuple[str, ...]] = Counter()

    def add(
        self,
        event: CountedEvent,
        kind: str = "",
        *,
        door: str = "",
        tool: str = "",
        host: str = "",
        project: str = "",
        by: int = 1,
    ) -> None:
        self._pending[event, *map(_plain, (host, project, door, tool, kind))] += by

    async def flush(self) -> None:
        """Store the pending counts under the current day. If the store fails, they are lost."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        now = self._clock.now()
        day = _day(now)
        figures = [
            EventRow(
                id="\t".join((day, event, host, project, "", door, tool, kind)),
                kind=event,
                at=now,
                host=host,
                project=project,
                door=door,
                tool=tool,
                outcome=kind,
                times=number,
            )
            for (event, host, project, door, tool, kind), number in pending.items()
        ]
        try:
            await self._events.add(figures)
        except StoreError as error:
            LOG.warning("counts were not stored: %s", error)

    async def since(self, days: int) -> list[Count]:
        """The last `days` days, including today. Raises StoreError."""
        await self.flush()
        today = self._clock.now() // _DAY_SECONDS * _DAY_SECONDS
        first = today - (days - 1) * _DAY_SECONDS
        counts = [count for row in await self._events.figures(first) for count in _counts_of(row)]
        sessions = await self._events.sessions(first)
        return counts + [
            Count(_day(first), CountedEvent.SESSION, "", "", _digest_of(session), 1)
            for session in sessions
        ]


def _counts_of(row: Sequence[Any]) -> Iterator[Count]:
    day, event, host, project, door, tool, kind, *figures = row
    times, memories, tokens, before, after, late = figures
    found = [(event, kind, times), ("said", "memories", memories), ("said", "tokens", tokens)]
    if event == CountedEvent.COMPRESSED:
        found = [(event, "results", times), (event, "tokens_before", before)]
        found.append((event, "tokens_saved", before - after))
    if late:
        found.append(("late", "missed", late))
    for name, detail, number in found:
        if number:
            yield Count(day, CountedEvent(name), door, _plain(tool), detail, number, host, project)


@lru_cache(maxsize=64)
def _digest_of(session: str) -> str:
    digest = hashlib.sha256(session.encode(errors="replace")).hexdigest()
    return digest[:_SESSION_DIGEST_CHARS]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


@lru_cache(maxsize=1_000)
def _plain(name: str) -> str:
    return " ".join(name.split())[:_MAX_NAME_CHARS]
