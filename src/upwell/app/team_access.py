"""The team's memories behind a gateway's `/team`."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from upwell.app.wiring import App
from upwell.ground.types.principal import Principal
from upwell.memory.team.access import AccessedMemories, LimitedMemories, Received
from upwell.memory.team.base import ChangePage, Cursor, Outgoing
from upwell.web.team import OpenFor

IDENTITY_SECONDS = 60.0
"""How long the store's identity is remembered. It changes only if the database is replaced."""


class _Remembered:
    """Wraps `LimitedMemories`: asks for the store's identity at most once a minute, because
    machines poll every few seconds."""

    def __init__(self, shared: LimitedMemories) -> None:
        self._shared = shared
        self._identity = ""
        self._asked_at = 0.0

    async def identity(self) -> str:
        now = time.monotonic()
        if not self._identity or now - self._asked_at > IDENTITY_SECONDS:
            self._identity = await self._shared.identity()
            self._asked_at = now
        return self._identity

    async def pages(self, cursors: Sequence[Cursor]) -> Sequence[ChangePage]:
        return await self._shared.pages(cursors)

    async def receive_within(
        self, writes: Sequence[Outgoing], may_change: Callable[[str], bool]
    ) -> Received:
        return await self._shared.receive_within(writes, may_change)


def team_access(app: App) -> OpenFor | None:
    """Return the function that opens a principal's memories, over the connections of `app`; None
    without a team's database."""
    if app.postgres is None:
        return None
    from upwell.memory.postgres.shared import PostgresSharedMemories

    store = app.config.store
    shared = _Remembered(PostgresSharedMemories(app.postgres, tenant=store.tenant))

    @asynccontextmanager
    async def opened(principal: Principal) -> AsyncIterator[AccessedMemories]:
        yield AccessedMemories(shared, principal, app.audit, read_only=store.read_only)

    return opened
