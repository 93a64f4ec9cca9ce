"""Detects changes to memories by other machines, with LISTEN or by polling. Polling is used behind
all poolers, because those in transaction mode do not pass on notifications."""

import asyncio
import random
from collections.abc import Callable

import psycopg

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.postgres.migrate import connect, is_pooled
from upwell.ground.postgres.schema import CHANNEL, tenant_number
from upwell.ground.trace import LOG

Changed = Callable[[], object]
MEMORIES = "memories"
GATHER_SECONDS = 0.05
"""Notifications that arrive within this time are reported together."""
POLL_SECONDS = 0.5
RETRY_SECONDS = 1.0
_VERSION = "SELECT max(version) FROM upwell.tenant WHERE tenant = %(tenant)s"


async def listen(postgres: Postgres, tenant: str, changed: Changed) -> None:
    """Call `changed` when a tenant's memories have changed, until cancelled. It is also called
    after each connect, because changes may have been missed.
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
        changed()
        while True:
            parts = {note.payload async for note in connection.notifies(stop_after=1)}
            await asyncio.sleep(GATHER_SECONDS)
            parts |= {note.payload async for note in connection.notifies(timeout=0)}
            if MEMORIES in parts:
                changed()


async def _poll(postgres: Postgres, tenant: str, changed: Changed) -> None:
    known: object = None
    changed()
    while True:
        (((version,),),) = await postgres.ask(tenant, Statement(_VERSION, {}))
        if version != known:
            known = version
            changed()
        await asyncio.sleep(POLL_SECONDS)
