"""Migrate the tables of a PostgreSQL database."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from upwell.ground.errors import StoreTooNew
from upwell.ground.postgres.schema import LOCK, MIGRATIONS

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
