"""Connections to PostgreSQL: pooled, with one tenant per transaction and several statements per
round trip.

Works behind pgbouncer in transaction mode: nothing outlives a transaction on the server, and no
statement is prepared there.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import psycopg
from psycopg import AsyncConnection, AsyncPipeline
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from upwell.ground.errors import StoreError, StoreTooNew
from upwell.ground.postgres.schema import LOCK, MIGRATIONS, TENANT_SETTING, tenant_number

MAX_CONNECTIONS = 8
CONNECT_SECONDS = 5
_BY_INDEX = dict.fromkeys(("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"), "off")
"""Lookups use the indexes even if the planner has no statistics of the tables yet."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with `%(name)s` marks. `tenant` is set for every statement."""

    sql: str
    values: Mapping[str, object]


Rows = Sequence[TupleRow]


class Transaction:
    """An open transaction of one tenant."""

    def __init__(self, connection: AsyncConnection, pipeline: AsyncPipeline, tenant: int) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._tenant = tenant

    async def of(self, tenant: str) -> "Transaction":
        """Switch to another tenant within the same transaction."""
        number = tenant_number(tenant)
        await self._connection.execute(_settings(number))
        return Transaction(self._connection, self._pipeline, number)

    async def run(self, *statements: Statement) -> list[Rows]:
        """Run statements in one round trip. Returns the rows of each."""
        cursors = []
        for statement in statements:
            values = {**statement.values, "tenant": self._tenant}
            sql = statement.sql
            cursors.append(await self._connection.execute(sql, values))
        await self._pipeline.sync()
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]


class Postgres:
    """The connections of this process to one database, opened at the first use."""

    def __init__(self, url: str, *, size: int = MAX_CONNECTIONS) -> None:
        self.url = url
        self._pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
            url,
            min_size=0,
            max_size=size,
            open=False,
            timeout=CONNECT_SECONDS,
            kwargs={
                "autocommit": True,
                "prepare_threshold": None,
                "connect_timeout": CONNECT_SECONDS,
            },
        )
        self._opening = asyncio.Lock()
        self._is_open = False

    @asynccontextmanager
    async def transaction(self, tenant: str) -> AsyncIterator[Transaction]:
        """Write for one tenant in one transaction, which an exception rolls back.

        Raises:
            StoreError: the database failed; nothing was changed.
        """
        number = tenant_number(tenant)
        async with (
            self._connected() as connection,
            connection.pipeline() as pipeline,
            connection.transaction(),
        ):
            await connection.execute(_settings(number))
            yield Transaction(connection, pipeline, number)

    async def ask(self, tenant: str, *statements: Statement) -> list[Rows]:
        """Read for a tenant in one round trip. The statements are planned by index.

        Raises:
            StoreError: the database failed.
        """
        number = tenant_number(tenant)
        async with self._connected() as connection, connection.pipeline() as pipeline:
            # The statements of a pipeline are one transaction, until it is synchronised.
            await connection.execute(_settings(number, _BY_INDEX))
            return await Transaction(connection, pipeline, number).run(*statements)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        try:
            await self._open()
            async with self._pool.connection() as connection:
                yield connection
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            raise _store_error(error) from error

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _open(self) -> None:
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await migrate(self.url)
                await self._pool.open()
                self._is_open = True


def _settings(tenant: int, others: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the statement that names the tenant, for the rest of the transaction."""
    settings = {TENANT_SETTING: str(tenant), **others}
    calls = [f"set_config('{name}', '{value}', true)" for name, value in settings.items()]
    return f"SELECT {', '.join(calls)}"


async def migrate(url: str) -> None:
    """Bring the tables up to date. Processes that start at the same time wait for each other.

    Raises:
        psycopg.Error: the database cannot be reached, or the user may not create the tables.
        StoreTooNew: a later version of upwell created the tables.
    """
    connection = await AsyncConnection.connect(
        url, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS
    )
    async with connection:
        version = await _version(connection)
        if version > len(MIGRATIONS):
            raise StoreTooNew(
                f"the tables have version {version}; this upwell knows {len(MIGRATIONS)}",
                hint="upgrade upwell on this machine",
            )
        if version == len(MIGRATIONS):
            return
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
    """Return the number of the last migration of a database."""
    exists = await connection.execute("SELECT to_regclass('upwell.migration') IS NOT NULL")
    if not cast(TupleRow, await exists.fetchone())[0]:
        return 0
    newest = await connection.execute("SELECT coalesce(max(number), 0) FROM upwell.migration")
    return int(cast(TupleRow, await newest.fetchone())[0])


def _store_error(error: Exception) -> StoreError:
    lines = str(error).strip().splitlines()
    return StoreError(
        f"PostgreSQL failed: {lines[0] if lines else type(error).__name__}",
        hint="check store.url and whether the server runs; `upwell doctor` tries it",
    )
