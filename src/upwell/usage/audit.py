"""The audit log: who changed memories over MCP, and whose requests were denied. It contains names
and ids, but no text.

A home writes lines of JSON to a file or, if it uses a team's database, rows to a table. In the
database, a trigger also adds a row for each SQL statement that stores or removes memories.
"""

import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import asdict

from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG, contained

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres

MAX_FILE_BYTES = 5_000_000
RETENTION_SECONDS = 365 * 86_400.0
REPEAT_SECONDS = 60.0
"""At most one denied request is recorded within this time for each principal and reason."""
STRANGER_SECONDS = 3_600.0
"""In each period of this length, at most one denied request without a valid token is recorded for
each address and reason."""
MAX_OF_STRANGERS = 60
"""How many denials of requests without a valid token are recorded per `STRANGER_SECONDS`. One
more entry counts all others, so that a flood of requests does not fill the log."""
MAX_REMEMBERED = 2_000
MAX_CHARS = 300
UNKNOWN = "unknown"


class AuditEntry(Struct, frozen=True):
    """One entry. `at` is in epoch seconds. `actor` is the principal's name. It is "" for the
    owner, and `UNKNOWN` with the sender's address if a request has no valid token. `outcome` is
    "done", or says why the request was refused."""

    at: float
    actor: str
    action: str
    subject: str
    outcome: str


class Log(Protocol):
    async def write(self, event: AuditEntry) -> None: ...

    async def latest(self, limit: int) -> Sequence[AuditEntry]:
        """The latest events, newest first."""
        ...

    async def expire(self, now: float) -> None: ...


class FileLog:
    """A file in the home. One older file is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, event: AuditEntry) -> None:
        with suppress(FileNotFoundError):
            if self._path.stat().st_size > MAX_FILE_BYTES:
                self._path.replace(self._older)
        line = f"{json.dumps(asdict(event))}\n".encode()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    async def latest(self, limit: int) -> Sequence[AuditEntry]:
        events: list[AuditEntry] = []
        for path in (self._older, self._path):
            with suppress(FileNotFoundError):
                lines = path.read_text(encoding="utf-8").splitlines()
                read = (_event(line) for line in lines[-limit:])
                events += [event for event in read if event is not None]
        return events[::-1][:limit]

    async def expire(self, now: float) -> None:
        """Do nothing, because the files are limited in size."""

    @property
    def _older(self) -> Path:
        return self._path.with_suffix(".1.jsonl")


def _event(line: str) -> AuditEntry | None:
    """Read a line of the file. A full disk may have left half a line, which is None."""
    try:
        return AuditEntry(**json.loads(line))
    except (ValueError, TypeError):
        return None


class PostgresLog:
    def __init__(self, postgres: "Postgres", tenant: str) -> None:
        self._postgres = postgres
        self._tenant = tenant

    async def write(self, event: AuditEntry) -> None:
        sql = """INSERT INTO upwell.audit (tenant, at, actor, action, subject, outcome) VALUES
                 (%(tenant)s, %(at)s, %(actor)s, %(action)s, %(subject)s, %(outcome)s)"""
        await self._ask(sql, asdict(event))

    async def latest(self, limit: int) -> Sequence[AuditEntry]:
        sql = """SELECT at, actor, action, subject, outcome FROM upwell.audit
                 WHERE tenant = %(tenant)s ORDER BY at DESC, id LIMIT %(limit)s"""
        return [AuditEntry(*row) for row in await self._ask(sql, {"limit": limit})]

    async def expire(self, now: float) -> None:
        sql = "DELETE FROM upwell.audit WHERE tenant = %(tenant)s AND at < %(before)s"
        await self._ask(sql, {"before": now - RETENTION_SECONDS})

    async def _ask(self, sql: str, values: Mapping[str, Any]) -> Sequence[Any]:
        from upwell.ground.postgres.connection import Statement

        (rows,) = await self._postgres.ask(self._tenant, Statement(sql, values))
        return rows


class _Strangers:
    """Decides which denials of requests without a valid token to record, and counts the others."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._listed: set[tuple[str, str]] = set()
        self._unlisted = 0

    def unlisted(self, now: float) -> int:
        """If `STRANGER_SECONDS` have passed, start the next period and return the number of denials
        that were only counted. Otherwise, return 0."""
        if now < self._until:
            return 0
        unlisted, self._unlisted = self._unlisted, 0
        self._until = now + STRANGER_SECONDS
        self._listed.clear()
        return unlisted

    def is_new(self, address: str, why: str, now: float) -> bool:
        key = (address, why)
        if key in self._listed or len(self._listed) >= MAX_OF_STRANGERS:
            self._unlisted += 1
            return False
        self._listed.add(key)
        return True


class Audit:
    """Writes events in the background. A request neither waits for the log nor fails if the log
    cannot be written."""

    def __init__(self, log: Log, clock: Clock = SYSTEM_CLOCK) -> None:
        self._log = log
        self._clock = clock
        self._denials: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._strangers = _Strangers()
        self._tasks = BackgroundTasks("audit log")

    def record(self, actor: str, action: str, subject: str, outcome: str) -> None:
        parts = (
            "".join(char if char.isprintable() else " " for char in part[:MAX_CHARS])
            for part in (actor, action, subject, outcome)
        )
        plain = (part.encode("utf-8", "replace").decode() for part in parts)
        self._tasks.start(self._write(AuditEntry(self._clock.now(), *plain)))

    def denied(self, actor: str, why: str) -> None:
        """Record that a principal's request was denied, at most once a minute for each `why`."""
        now, key = self._clock.monotonic(), (actor, why)
        if now - self._denials.get(key, now - 2 * REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        self._denials[key] = now
        if len(self._denials) > MAX_REMEMBERED:
            self._denials.popitem(last=False)
        self._record_denial(actor, why)

    def stranger(self, address: str, why: str) -> None:
        """Record that a request from `address` was denied. It had no valid token."""
        now = self._clock.monotonic()
        self._record_unlisted(now)
        if self._strangers.is_new(address, why, now):
            self._record_denial(f"{UNKNOWN} at {address}" if address else UNKNOWN, why)

    async def latest(self, limit: int = 100) -> Sequence[AuditEntry]:
        """Raises StoreError if the database failed, or OSError or ValueError for the file."""
        return await self._log.latest(limit)

    async def expire(self) -> None:
        """Remove events over a year old if the log is in a team's database."""
        self._record_unlisted(self._clock.monotonic())
        await self._log.expire(self._clock.now())

    async def aclose(self) -> None:
        self._record_unlisted(math.inf)
        await self._tasks.drain()

    def _record_unlisted(self, now: float) -> None:
        if unlisted := self._strangers.unlisted(now):
            self._record_denial(UNKNOWN, f"{unlisted:,} more requests without a valid token")

    def _record_denial(self, actor: str, why: str) -> None:
        self.record(actor, "request", "", f"denied: {why}")

    async def _write(self, event: AuditEntry) -> None:
        with contained("writing the audit log"):
            try:
                await self._log.write(event)
            except OSError as error:
                LOG.error("the audit log cannot be written: %s", error)
