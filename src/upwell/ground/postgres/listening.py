"""Detects changes made by other machines, with LISTEN or by polling. Polling is used behind all
poolers, because those in transaction mode do not pass on notifications."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import psycopg
from psycopg.rows import TupleRow

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.postgres.migrate import connect, is_pooled
from upwell.ground.postgres.schema import CHANNEL, tenant_number
from upwell.ground.trace import LOG

Changed = Callable[[frozenset[str]], Awaitable[None]]
MEMORIES, LEARNED, FILES = "memories", "learned", "files"
EVERYTHING = frozenset({MEMORIES, LEARNED, FILES})
GATHER_SECONDS = 0.05
"""Notifications that arrive within this time are reported together."""
POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
_VERSIONS = """
    SELECT (SELECT version FROM upwell.tenant WHERE tenant = %(tenant)s),
        (SELECT learned FROM upwell.tenant WHERE tenant = %(tenant)s),
        (SELECT sum(version) FROM upwell.home_file WHERE tenant = %(tenant)s)"""


async def listen(postgres: Postgres, tenant: str, changed: Changed) -> None:
    """Call `changed` with the kinds of a tenant's data that have changed, until cancelled. After
    each connect, `EVERYTHING` is reported, because changes may have been missed.
    """
    while True:
        try:
            await _follow(postgres, tenant, changed)
        except (psycopg.Error, StoreError, OSError) as error:
            LOG.debug("changes cannot be followed: %s", error)
        await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.0))


async def _follow(postgres: Postgres, tenant: str, changed: Changed) -> None:
    await postgres.ask(tenant)  # creates the tables
    connection = await connect(postgres.url)
    async with connection:
        if await is_pooled(connection):
            await connection.close()
            await _poll(postgres, tenant, changed)
        await connection.execute(f'LISTEN "{CHANNEL}{tenant_number(tenant)}"')
        await changed(EVERYTHING)
        while True:
            parts = {note.payload async for note in connection.notifies(stop_after=1)}
            await asyncio.sleep(GATHER_SECONDS)
            parts |= {note.payload async for note in connection.notifies(timeout=0)}
            await changed(frozenset(parts))


class Versions:
    """Detects changes without LISTEN, from the version numbers of a tenant's shared data."""

    def __init__(self, postgres: Postgres, tenant: str, changed: Changed) -> None:
        self._postgres = postgres
        self._tenant = tenant
        self._changed = changed
        self._known: TupleRow = (None, None, None)

    async def check(self) -> None:
        """Call `changed` with the kinds of data that have changed since the last check, if any.

        Raises:
            StoreError: the database failed.
        """
        ((versions,),) = await self._postgres.ask(self._tenant, Statement(_VERSIONS, {}))
        parts = (MEMORIES, LEARNED, FILES)
        new = {
            part for part, old, now in zip(parts, self._known, versions, strict=True) if old != now
        }
        self._known = versions
        if new:
            await self._changed(frozenset(new))


async def _poll(postgres: Postgres, tenant: str, changed: Changed) -> None:
    versions = Versions(postgres, tenant, changed)
    await changed(EVERYTHING)
    while True:
        await versions.check()
        await asyncio.sleep(POLL_SECONDS)
