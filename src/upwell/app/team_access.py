"""The team's memories behind a gateway's `/team`, for the principals of every tenant.

No tenant's app is opened, because machines poll every few seconds and at most 64 apps are kept
open.
"""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from upwell.app.wiring import App
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.types.principal import Principal
from upwell.memory.team.access import AccessedMemories, LimitedMemories, Limits, Received
from upwell.memory.team.base import Cursor, Outgoing, Page
from upwell.usage.audit import Audit, PostgresLog
from upwell.web.team import OpenFor

if TYPE_CHECKING:
    from upwell.memory.postgres.pruning import Pruning

MAX_TENANTS = 500
IDENTITY_SECONDS = 60.0
"""How long the identity of a tenant's store is remembered. The identity changes only if the tenant
is deleted or the database is replaced."""


class _Remembered:
    """Wraps `LimitedMemories`: asks for the store's identity at most once a minute, and prunes the
    records of old deletions. A tenant's app also prunes them, but a tenant that is used only
    through `/team` has no open app."""

    def __init__(self, shared: LimitedMemories, pruning: "Pruning") -> None:
        self._shared = shared
        self._pruning = pruning
        self._identity = ""
        self._asked_at = 0.0

    async def identity(self) -> str:
        now = time.monotonic()
        if not self._identity or now - self._asked_at > IDENTITY_SECONDS:
            self._identity = await self._shared.identity()
            self._asked_at = now
        return self._identity

    async def pages(self, cursors: Sequence[Cursor]) -> Sequence[Page]:
        return await self._shared.pages(cursors)

    async def receive_within(self, writes: Sequence[Outgoing], limits: Limits) -> Received:
        received = await self._shared.receive_within(writes, limits)
        try:
            await self._pruning.run_if_due()
        except StoreError as error:
            LOG.warning("old deletions cannot be pruned: %s", error)
        return received


class _Tenant(Struct, frozen=True):
    shared: _Remembered
    audit: Audit


class TeamAccess:
    """Opens the memories of principals, over the connections of `app`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    @property
    def open_for(self) -> OpenFor | None:
        """Return the function that opens a principal's memories; None without a team's database."""
        return self._opened if self._app.postgres else None

    @asynccontextmanager
    async def _opened(self, principal: Principal) -> AsyncIterator[AccessedMemories]:
        config = self._app.config
        tenant = await self._of(principal.tenant or config.store.tenant)
        yield AccessedMemories(
            tenant.shared,
            principal,
            tenant.audit,
            read_only=config.store.read_only,
            max_memories=config.limits.tenant_memories,
        )

    async def _of(self, name: str) -> _Tenant:
        from upwell.memory.postgres.pruning import Pruning
        from upwell.memory.postgres.shared import PostgresSharedMemories

        postgres = self._app.postgres
        if postgres is None:
            raise StoreError("there is no team database", hint="set store.url")
        if name not in self._tenants:
            shared = PostgresSharedMemories(postgres, tenant=name)
            audit = Audit(PostgresLog(postgres, name))
            pruning = Pruning(postgres, name, self._app.config.store.deletions_days)
            self._tenants[name] = _Tenant(_Remembered(shared, pruning), audit)
        self._tenants.move_to_end(name)
        if len(self._tenants) > MAX_TENANTS:
            _, idle = self._tenants.popitem(last=False)
            await idle.audit.aclose()
        return self._tenants[name]

    async def aclose(self) -> None:
        """Finish writing the audit logs."""
        for tenant in self._tenants.values():
            await tenant.audit.aclose()
