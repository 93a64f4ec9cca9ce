"""The tenants that one gateway serves. Each has an app of its own, with its own memory, ledger,
originals, learning and topics, so that no data from one tenant can reach another. They share the
servers behind the gateway and the connections to the database.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from msgspec import Struct

from upwell.app.learning import forget_notes
from upwell.app.memory import Settings
from upwell.app.wiring import App, assemble
from upwell.gateway.calls.pipeline import Pipeline
from upwell.gateway.clients import Client
from upwell.gateway.upstreams.supervisor import Upstream
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG, contained
from upwell.ground.types.rpc import Reply, ToolCall

MAX_OPEN = 64
"""Beyond this number, the app that has been idle for the longest is closed."""
IDLE_SECONDS = 600.0
FOLLOW_SECONDS = 0.5
ACTIVE_SECONDS = 10.0
"""How long after its last request a tenant counts as in use. Until then, changes by other machines
are adopted every `FOLLOW_SECONDS`. After that, they are adopted at its next request.
"""
_MINUTE = 60.0
_MINUTES_OF_HOUSEKEEPING = 60


class Opened(Struct):
    """The app of a tenant, and the number of requests that use it now."""

    app: App
    pipeline: Pipeline
    users: int = 0
    used_at: float = 0.0

    def is_active(self, now: float) -> bool:
        return self.users > 0 or now - self.used_at < ACTIVE_SECONDS


class Tenants:
    """The app of the home's own tenant, and an app for each other tenant, opened by the tenant's
    first request."""

    def __init__(self, own: App, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._own = Opened(own, own.pipeline())
        self._others: OrderedDict[str, Opened] = OrderedDict()
        self._opening = asyncio.Lock()
        self._clock = clock

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[Opened]:
        """Open a tenant's app. An empty `tenant` opens the home's own app. The app stays open
        within the block.

        Raises:
            StoreError: the app cannot be opened.
        """
        is_own = tenant in ("", self._own.app.config.store.tenant)
        opened = self._own if is_own else await self._find(tenant)
        if not is_own and not opened.is_active(self._clock.monotonic()):
            await _adopt(opened.app)
        opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            opened.used_at = self._clock.monotonic()

    async def call(self, call: ToolCall, upstream: Upstream, client: Client) -> Reply:
        """Send a call through the pipeline of its caller's tenant."""
        async with self.of(client.principal.tenant) as opened:
            return await opened.pipeline.call(call, upstream, client)

    async def run_housekeeping(self) -> None:
        """Close idle apps, and do the periodic work of the others, until cancelled."""
        minute = 0
        while True:
            await asyncio.sleep(_MINUTE)
            minute += 1
            await self.close_idle()
            for opened in list(self._others.values()):
                with contained("adopting learned values"):
                    await opened.app.budgets.load_learned_if_requested()
                    await opened.app.learning.learned.load_learned()
                if minute % _MINUTES_OF_HOUSEKEEPING == 0:
                    with contained("housekeeping"):
                        await forget_notes(opened.app.notes)
                        await opened.app.run_housekeeping()

    async def follow(self) -> None:
        """Adopt the changes that other machines make to tenants in use, until cancelled."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            now = self._clock.monotonic()
            active = [opened for opened in self._others.values() if opened.is_active(now)]
            await asyncio.gather(*(_adopt(opened.app) for opened in active))

    async def close_idle(self) -> None:
        """Close the apps that have not been used for `IDLE_SECONDS`."""
        before = self._clock.monotonic() - IDLE_SECONDS
        async with self._opening:
            for tenant, opened in list(self._others.items()):
                if not opened.users and opened.used_at <= before:
                    await self._close(tenant)

    async def aclose(self) -> None:
        """Stop the searches that are still running, and close all apps but the home's own."""
        await self._own.pipeline.aclose()
        async with self._opening:
            for tenant in list(self._others):
                await self._close(tenant)

    async def _find(self, tenant: str) -> Opened:
        async with self._opening:
            opened = self._others.get(tenant)
            if opened is None:
                await self._make_room()
                app = await open_tenant(self._own.app, tenant)
                opened = self._others[tenant] = Opened(app, app.pipeline())
            self._others.move_to_end(tenant)
            return opened

    async def _make_room(self) -> None:
        idle = [tenant for tenant, opened in self._others.items() if not opened.users]
        if len(self._others) >= MAX_OPEN and idle:
            await self._close(idle[0])

    async def _close(self, tenant: str) -> None:
        opened = self._others.pop(tenant)
        with contained("closing the app of a tenant"):
            await opened.pipeline.aclose()
            await opened.app.aclose()


async def _adopt(app: App) -> None:
    try:
        await app.team_changes.check()
    except StoreError as error:
        LOG.debug("changes of a tenant cannot be followed: %s", error)


async def open_tenant(own: App, tenant: str) -> App:
    """Open the app of another tenant, in a folder below the home, with the home's configuration.

    Raises:
        StoreError: a file cannot be used.
    """
    config = own.config
    home = config.home.of_tenant(tenant).prepare()
    # The worker processes read the configuration from this folder.
    for name in ("config.toml", "lexicon.toml"):
        source, link = config.home.root / name, home.root / name
        if source.exists() and not link.is_symlink():
            link.symlink_to(source)
    environment = {**config.environment, "UPWELL_STORE__TENANT": tenant}
    tenants = replace(
        config,
        home=home,
        store=replace(config.store, tenant=tenant),
        servers=(),
        environment=environment,
    )
    LOG.info("a tenant's memory opens in %s", home.root.name)
    settings = Settings(tolerant=True)
    app = await assemble(tenants, settings, own.postgres)
    await forget_notes(app.notes)
    return app
