"""Learn of changes that other machines make: by LISTEN, or by polling behind a pooler, which does
not pass notifications on in transaction mode."""

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
"""Notifications that arrive within this time are one change."""
POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
_VERSIONS = """
    SELECT (SELECT version FROM upwell.tenant WHERE tenant = %(tenant)s),
        (SELECT learned FROM upwell.tenant WHERE tenant = %(tenant)s),
        (SELECT sum(version) FROM upwell.home_file WHERE tenant = %(tenant)s)"""


async def listen(postgres: Postgres, tenant: str, changed: Changed) -> None:
    """Report the changes of a tenant until cancelled. After every connection `changed` is called
    with everything, because changes may have been missed.
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


async def _poll(postgres: Postgres, tenant: str, changed: Changed) -> None:
    known: TupleRow = (None, None, None)
    await changed(EVERYTHING)
    while True:
        ((versions,),) = await postgres.ask(tenant, Statement(_VERSIONS, {}))
        parts = (MEMORIES, LEARNED, FILES)
        new = {part for part, old, now in zip(parts, known, versions, strict=True) if old != now}
        known = versions
        if new:
            await changed(frozenset(new))
        await asyncio.sleep(POLL_SECONDS)
