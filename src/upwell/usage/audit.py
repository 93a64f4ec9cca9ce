"""The audit log: who changed the memory over MCP, and who was denied something. It contains names
and ids, never texts.

A home writes lines of JSON to a file or, if it uses a team's database, rows to a table there. The
database itself adds a row for every stored or removed memory, whichever door wrote it.
"""

import json
import math
import os
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG, contained

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres

MAX_FILE_BYTES = 5_000_000
RETENTION_SECONDS = 365 * 86_400.0
REPEAT_SECONDS = 60.0
"""The same denial of the same principal is recorded at most once within this time."""
STRANGER_SECONDS = 3_600.0
"""Requests without a valid token that come from one address and are denied for the same reason are
recorded at most once within this time."""
MAX_OF_STRANGERS = 60
"""At most this many of these denials are listed within `STRANGER_SECONDS`. One more entry then
counts all others, so that a flood of requests does not fill the log."""
MAX_REMEMBERED = 2_000
MAX_CHARS = 300
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Event:
    """One entry: the time (epoch seconds), the principal ("" for the owner, `UNKNOWN` with an
    address for a request without a valid token), the action, its subject, and the outcome: `done`,
    or the reason for a denial."""

    at: float
    actor: str
    action: str
    subject: str
    outcome: str


class Log(Protocol):
    """A place to write events to."""

    async def write(self, event: Event) -> None: ...

    async def latest(self, limit: int) -> Sequence[Event]:
        """The latest events, newest first."""
        ...

    async def expire(self, now: float) -> None: ...


class FileLog:
    """Events in a file of the home; one older file is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, event: Event) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size > MAX_FILE_BYTES:
                self._path.replace(self._older)
        line = f"{json.dumps(asdict(event))}\n".encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    async def latest(self, limit: int) -> Sequence[Event]:
        events: list[Event] = []
        for path in (self._older, self._path):
            with suppress(FileNotFoundError):
                lines = path.read_text(encoding="utf-8").splitlines()
                events += [Event(**json.loads(line)) for line in lines[-limit:]]
        return events[::-1][:limit]

    async def expire(self, now: float) -> None:
        """Do nothing, because the size of the files is limited."""

    @property
    def _older(self) -> Path:
        return self._path.with_suffix(".1.jsonl")


class PostgresLog:
    """Events in a team's database."""

    def __init__(self, postgres: "Postgres", tenant: str) -> None:
        self._postgres = postgres
        self._tenant = tenant

    async def write(self, event: Event) -> None:
        from upwell.ground.postgres.connection import Statement

        sql = """INSERT INTO upwell.audit (tenant, at, actor, action, subject, outcome) VALUES
                 (%(tenant)s, %(at)s, %(actor)s, %(action)s, %(subject)s, %(outcome)s)"""
        await self._postgres.ask(self._tenant, Statement(sql, asdict(event)))

    async def latest(self, limit: int) -> Sequence[Event]:
        from upwell.ground.postgres.connection import Statement

        sql = """SELECT at, actor, action, subject, outcome FROM upwell.audit
                 WHERE tenant = %(tenant)s ORDER BY at DESC, id LIMIT %(limit)s"""
        (rows,) = await self._postgres.ask(self._tenant, Statement(sql, {"limit": limit}))
        return [Event(*row) for row in rows]

    async def expire(self, now: float) -> None:
        from upwell.ground.postgres.connection import Statement

        sql = "DELETE FROM upwell.audit WHERE tenant = %(tenant)s AND at < %(before)s"
        values = {"before": now - RETENTION_SECONDS}
        await self._postgres.ask(self._tenant, Statement(sql, values))


class _Strangers:
    """Chooses which denials of requests without a valid token are listed within an hour; the
    others are counted."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._listed: set[tuple[str, str]] = set()
        self._unlisted = 0

    def unlisted(self, now: float) -> int:
        """0 until the hour is over; then the number of that hour's denials that were not listed,
        and the next hour begins at `now`."""
        if now < self._until:
            return 0
        unlisted, self._unlisted = self._unlisted, 0
        self._until = now + STRANGER_SECONDS
        self._listed.clear()
        return unlisted

    def is_new(self, address: str, why: str, now: float) -> bool:
        """Whether to list a denial."""
        key = (address, why)
        if key in self._listed or len(self._listed) >= MAX_OF_STRANGERS:
            self._unlisted += 1
            return False
        self._listed.add(key)
        return True


class Audit:
    """Writes events in the background. A request neither waits for the log nor fails with it."""

    def __init__(self, log: Log, clock: Clock = SYSTEM_CLOCK) -> None:
        self._log = log
        self._clock = clock
        self._denials: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._strangers = _Strangers()
        self._tasks = BackgroundTasks("audit log")

    def record(self, actor: str, action: str, subject: str, outcome: str) -> None:
        """Record a change, or an attempt to make one."""
        parts = (_plain(part) for part in (actor, action, subject, outcome))
        self._tasks.start(self._write(Event(self._clock.now(), *parts)))

    def denied(self, actor: str, why: str) -> None:
        """Record that a request of a principal was denied, at most once a minute for each `why`."""
        now, key = self._clock.monotonic(), (actor, why)
        if now - self._denials.get(key, now - 2 * REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._denials[key] = now
        if len(self._denials) > MAX_REMEMBERED:
            self._denials.popitem(last=False)
        self._record_denial(actor, why)

    def stranger(self, address: str, why: str) -> None:
        """Record the denial of a request without a valid token that came from `address`."""
        now = self._clock.monotonic()
        self._record_unlisted(now)
        if self._strangers.is_new(address, why, now):
            self._record_denial(f"{UNKNOWN} at {address}" if address else UNKNOWN, why)

    async def latest(self, limit: int = 100) -> Sequence[Event]:
        """The latest events, newest first.

        Raises:
            StoreError: the database failed.
        """
        return await self._log.latest(limit)

    async def expire(self) -> None:
        """Remove events that are older than a year from a team's database. The files of a home are
        limited by size instead."""
        self._record_unlisted(self._clock.monotonic())
        await self._log.expire(self._clock.now())

    async def aclose(self) -> None:
        """Finish writing."""
        self._record_unlisted(math.inf)
        await self._tasks.drain()

    def _record_unlisted(self, now: float) -> None:
        if unlisted := self._strangers.unlisted(now):
            self._record_denial(UNKNOWN, f"{unlisted:,} more requests without a valid token")

    def _record_denial(self, actor: str, why: str) -> None:
        self.record(actor, "request", "", f"denied: {why}")

    async def _write(self, event: Event) -> None:
        with contained("writing the audit log"):
            try:
                await self._log.write(event)
            except OSError as error:
                LOG.error("the audit log cannot be written: %s", error)


def _plain(text: str) -> str:
    """A text that every log can store on one line."""
    printable = "".join(char if char.isprintable() else " " for char in text[:MAX_CHARS])
    return printable.encode("utf-8", "replace").decode()
