"""Connections to PostgreSQL: pooled, with one tenant per transaction and several statements per
round trip. Opening the first one migrates the tables.

pgbouncer in transaction mode is supported: no state on the server outlives a transaction, and
statements are prepared only without a pooler. A database that does not respond is not used again
until a background task has reached it, so calls wait for a lost database only once.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Any, cast

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import StoreError, StoreTooNew
from upwell.ground.postgres.schema import LOCK, MIGRATIONS, TENANT_SETTING, tenant_number
from upwell.ground.trace import LOG, LOSSES

CONNECTION: Mapping[str, Any] = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    # These times determine how soon a network that drops packets is detected.
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}


async def connect(url: str) -> AsyncConnection:
    """Open a connection outside the pool.

    Raises:
        psycopg.Error: the database cannot be reached.
    """
    try:
        async with asyncio.timeout(CONNECTION["connect_timeout"]):
            return await AsyncConnection.connect(url, **CONNECTION)
    except TimeoutError as error:
        raise psycopg.OperationalError("the server does not answer") from error


async def migrate(url: str) -> bool:
    """Create or migrate the tables. Processes that start at the same time wait for each other.
    Returns whether a pooler is in front of the server.

    Raises:
        psycopg.Error: the database cannot be reached, or the user lacks the right to create tables.
        StoreTooNew: a later version of upwell created the tables.
    """
    connection = await connect(url)
    async with connection:
        version = await _version(connection)
        if version > len(MIGRATIONS):
            raise StoreTooNew(
                f"the tables have version {version}; this upwell knows {len(MIGRATIONS)}",
                hint="upgrade upwell on this machine",
            )
        if version < len(MIGRATIONS):
            await _update(connection)
        return await is_pooled(connection)


async def is_pooled(connection: AsyncConnection) -> bool:
    """Return whether a pooler is in front of the server. Poolers report process ids of their
    own."""
    answer = await connection.execute("SELECT pg_backend_pid()")
    return bool(cast(TupleRow, await answer.fetchone())[0] != connection.info.backend_pid)


async def _update(connection: AsyncConnection) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        await connection.execute("CREATE SCHEMA IF NOT EXISTS upwell")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS upwell.migration (number integer PRIMARY KEY)"
        )
        for number in range(await _version(connection), len(MIGRATIONS)):
            for statement in MIGRATIONS[number]:
                await connection.execute(statement)
            await connection.execute("INSERT INTO upwell.migration VALUES (%s)", (number + 1,))


async def _version(connection: AsyncConnection) -> int:
    exists = await connection.execute("SELECT to_regclass('upwell.migration') IS NOT NULL")
    if not cast(TupleRow, await exists.fetchone())[0]:
        return 0
    newest = await connection.execute("SELECT coalesce(max(number), 0) FROM upwell.migration")
    return int(cast(TupleRow, await newest.fetchone())[0])


MAX_CONNECTIONS = 8
PREPARE_THRESHOLD = 3
"""A connection prepares a statement after running it this many times. Until then, the server plans
the statement again on every run."""
CONNECT_SECONDS = 5.0
SUSPICIOUS_SECONDS = 0.1
"""After this time without a response, a second connection is opened to test the server."""
PROBE_SECONDS = 0.25
PROBE_PAUSE_SECONDS = 1.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.1, 1.0
CLOSING_SECONDS = 1.0
_LOST_STATES = ("08", "57P", "53300")
"""The beginnings of the SQLSTATEs for a lost connection, a server that is shutting down or
starting, and a server that accepts no more connections."""
_DISK_FULL = "53100"
_BY_INDEX = dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off")
"""Settings that make look-ups use the indexes even before the planner has statistics."""


class Statement(Struct, frozen=True):
    """A statement with `%(name)s` placeholders, and their values. `send()` adds the `tenant`."""

    sql: str
    values: Mapping[str, object]


Rows = Sequence[TupleRow]
Cursor = AsyncCursor[TupleRow]


class ConnectionUse(Struct, frozen=True):
    """The state of the connections. `connections`: how many are open. `most`: the maximum.
    `waiting`: how many requests are waiting for a connection."""

    is_lost: bool
    connections: int
    busy: int
    most: int
    waiting: int


class Transaction:
    """An open transaction for one tenant."""

    def __init__(self, connection: AsyncConnection, pipeline: AsyncPipeline, tenant: int) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._tenant = tenant

    async def run(self, *statements: Statement) -> list[Rows]:
        """Run statements in one round trip. Returns the rows of each statement."""
        cursors = [await send(self._connection, self._tenant, each) for each in statements]
        await self._pipeline.sync()
        return await _rows_of(cursors)


async def send(connection: AsyncConnection, tenant: int, statement: Statement) -> Cursor:
    """Send a statement in a pipeline, with the tenant as one of its values. Most of a tenant's
    statements are sent with this function."""
    return await connection.execute(statement.sql, {**statement.values, "tenant": tenant})


async def _rows_of(cursors: Sequence[Cursor]) -> list[Rows]:
    return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


class Postgres:
    """The connections of this process to one database, opened on first use."""

    def __init__(self, url: str, *, size: int = MAX_CONNECTIONS) -> None:
        self.url = url
        # This class logs failures itself.
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=size,
            open=False,
            timeout=CONNECT_SECONDS,
            # Only `_reach_again()` retries.
            reconnect_timeout=0.0,
            kwargs=dict(CONNECTION),
            configure=self._configure,
        )
        self._is_pooled = False
        self._opening = asyncio.Lock()
        self._is_open = False
        self._lost = ""
        self._lost_at = 0.0
        self._say: Callable[[str], None] | None = None
        self._answered_at = 0.0
        self._tasks = BackgroundTasks("PostgreSQL")
        self._suspicion: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the database has failed to respond and has not been reached since. While this is
        True, every use fails immediately."""
        return bool(self._lost)

    @property
    def use(self) -> ConnectionUse:
        """The current state of the connections."""
        pool = self._pool.get_stats()
        open_, idle = pool.get("pool_size", 0), pool.get("pool_available", 0)
        return ConnectionUse(
            is_lost=self.is_lost,
            connections=open_,
            busy=open_ - idle,
            most=pool.get("pool_max", 0),
            waiting=pool.get("requests_waiting", 0),
        )

    def report_to(self, say: Callable[[str], None]) -> None:
        """Call `say` with one line when the database is lost, and when it responds again."""
        self._say = say
        if self._lost:
            self._say_lost()

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Transaction]:
        """Open a transaction for one tenant. An exception in the block rolls it back.

        Raises:
            StoreError: the database failed. Nothing was changed, unless the connection broke while
            the server was committing.
        """
        number = tenant_number(tenant)
        async with (
            self._connected(CONNECT_SECONDS) as connection,
            connection.pipeline() as pipeline,
            connection.transaction(),
        ):
            await connection.execute(settings_of(number))
            yield Transaction(connection, pipeline, number)

    async def ask(self, tenant: str, *statements: Statement) -> list[Rows]:
        """Run a tenant's statements in one round trip and one transaction. The planner is told to
        use the indexes.

        Raises:
            StoreError: the database failed. A write may still take effect.
        """
        began = time.monotonic()
        task = self._tasks.start(_outcome(self._ask(tenant_number(tenant), statements)))
        try:
            # A caller who gives up does not wait for the cancellation, because a lost server never
            # confirms it.
            done, _ = await asyncio.wait({task}, timeout=SUSPICIOUS_SECONDS)
            if not done:
                if self._suspicion is None or self._suspicion.done():
                    self._suspicion = self._tasks.start(self._probe(began))
                await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        outcome = task.result()
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def _ask(self, tenant: int, statements: Sequence[Statement]) -> list[Rows]:
        async with (
            self._connected(CONNECT_SECONDS) as connection,
            connection.pipeline(),
        ):
            # The statements in a pipeline form one transaction, which ends with this block.
            await connection.execute(settings_of(tenant, _BY_INDEX))
            cursors = [await send(connection, tenant, statement) for statement in statements]
        rows = await _rows_of(cursors)
        self._answered_at = time.monotonic()
        return rows

    @asynccontextmanager
    async def _connected(self, seconds: float) -> AsyncIterator[AsyncConnection]:
        if self._lost:
            raise StoreError(
                f"PostgreSQL failed: {self._lost}",
                hint="upwell will keep trying; `upwell doctor` shows the state",
            )
        try:
            await self._open()
            async with self._pool.connection(timeout=seconds) as connection:
                yield connection
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            if _is_loss(error):
                self._lose(_first_line(error))
            raise store_error(error) from error

    async def aclose(self) -> None:
        """Close all connections, without waiting long for a server that does not respond."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._tasks.aclose()
        await self._pool.close(timeout=CLOSING_SECONDS)

    async def _open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                self._is_pooled = await migrate(self.url)
                await self._pool.open()
                self._is_open = True

    async def _configure(self, connection: AsyncConnection) -> None:
        if not self._is_pooled:
            connection.prepare_threshold = PREPARE_THRESHOLD

    def _lose(self, reason: str) -> None:
        if not self._lost:
            LOG.warning("PostgreSQL is lost: %s", reason)
            self._lost, self._lost_at = reason, time.monotonic()
            LOSSES.add()
            self._say_lost()
            self._tasks.start(self._reach_again())

    async def _probe(self, since: float) -> None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                connection = await connect(self.url)
            await connection.close()
            await asyncio.sleep(PROBE_PAUSE_SECONDS)
        except (psycopg.Error, TimeoutError):
            # A server that has responded to anyone since then is busy, not lost.
            if self._answered_at < since:
                self._lose("no answer")

    async def _reach_again(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while not await self._is_reached():
            # The delay is random, so that gateways do not all reconnect at the same moment.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(LAST_RETRY_SECONDS, delay * 2)
        self._lost = ""
        LOG.info("PostgreSQL answers again")
        if self._say:
            seconds = time.monotonic() - self._lost_at
            self._say(f"upwell: PostgreSQL answers again, after {seconds:.0f} s")

    def _say_lost(self) -> None:
        if self._say:
            self._say(
                f"upwell: PostgreSQL is lost: {self._lost}; calls continue without memory until it "
                "answers; check the server, its disk and store.url"
            )

    async def _is_reached(self) -> bool:
        try:
            connection = await connect(self.url)
            await connection.close()
            await self._open()
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._pool.check()
        except (psycopg.Error, StoreError, TimeoutError, PoolClosed) as error:
            LOG.debug("PostgreSQL is still lost: %s", error)
            return False
        return True


def settings_of(tenant: int, others: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the statement that sets the tenant and `others` for the rest of the transaction."""
    settings = {TENANT_SETTING: str(tenant), **others}
    calls = [f"set_config('{name}', '{value}', true)" for name, value in settings.items()]
    return f"SELECT {', '.join(calls)}"


async def _outcome[T](work: Coroutine[Any, Any, T]) -> T | StoreError:
    try:
        return await work
    except StoreError as error:
        return error


def _is_loss(error: Exception) -> bool:
    if isinstance(error, PoolTimeout | PoolClosed):
        return True
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    state = error.sqlstate
    return state is None or state.startswith(_LOST_STATES)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def store_error(error: Exception) -> StoreError:
    """Convert the driver's error to a StoreError."""
    is_full = getattr(error, "sqlstate", None) == _DISK_FULL
    return StoreError(
        f"PostgreSQL failed: {_first_line(error)}",
        hint="nothing was stored; free space on the database's disk, and try again"
        if is_full
        else "check store.url and that the server is running; `upwell doctor` tries to connect",
    )
