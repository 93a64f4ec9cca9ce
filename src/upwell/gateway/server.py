"""The gateway as a whole: the upstream servers, and the fronts on stdio and HTTP."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from upwell.gateway.calls.pipeline import Pipeline
from upwell.gateway.clients import Audience
from upwell.gateway.eras import EVERY_CLIENT, GatewayOffer, offer_of
from upwell.gateway.front.handshake import Hello
from upwell.gateway.front.http import HttpFront
from upwell.gateway.front.stdio import StdioFront
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.routing.resources import (
    LocalResources,
    ResourceMethods,
    Subscriptions,
    UpstreamResources,
)
from upwell.gateway.routing.router import Router
from upwell.gateway.routing.tools import LocalTools, ToolCatalog
from upwell.gateway.upstreams.connection import Connecting
from upwell.gateway.upstreams.supervisor import Fleet, ServerState, Upstream
from upwell.gateway.upstreams.tool_lists import ToolLists
from upwell.ground.trace import LOG
from upwell.wire.lines import Line, Sink

LISTED_KINDS = ("prompts", "resources")
HURRIED_GRACE_SECONDS = 0.2
"""How long each step of a server's shutdown may take after a gateway on stdio has received a
signal."""


class OwnServer(Struct, frozen=True, kw_only=True):
    """Clients see our own tools and resources as another server, named `upwell`."""

    tools: LocalTools
    resources: LocalResources


class ToolListing(Struct, frozen=True, kw_only=True):
    """See `ToolCatalog`."""

    may_compress: Callable[[str, str], bool]
    added: Callable[[str, int], None]


class GatewayRecords(Struct, frozen=True, kw_only=True):
    """What outlives a connection. The servers' combined offer and each server's tools are saved for
    the next start."""

    save_offer: Callable[[GatewayOffer], None]
    tool_lists: ToolLists


class Gateway:
    """Connects the parts of the gateway. `serve()` runs it for one agent on stdio; over HTTP, the
    application from `http()` serves many inside `running()`."""

    def __init__(
        self,
        servers: Sequence[ServerOptions],
        options: GatewayOptions,
        connecting: Connecting,
        own: OwnServer,
        pipeline: Pipeline,
        listing: ToolListing,
        records: GatewayRecords,
    ) -> None:
        self._options = options
        self._connecting = connecting
        self._records = records
        self._hello = Hello()
        self.audience = Audience(lambda: self._hello.capabilities)
        self._fleet = Fleet(servers, self._launch)
        self._catalog = ToolCatalog(
            lambda: self.upstreams,
            own.tools,
            listing.may_compress,
            listing.added,
        )
        self._resources = UpstreamResources(
            lambda: self.upstreams,
            own.resources,
            self._announce_lists,
        )
        self.router = Router(
            self._catalog,
            lambda: self.upstreams,
            own.tools,
            pipeline,
            self.audience,
            self._resources,
        )
        resource_methods = ResourceMethods(self.router.relay, self._resources, own.resources)
        self.router.add_methods(resource_methods.methods())
        self.router.add_methods(Subscriptions(self._resources, self.audience).methods())

    @property
    def upstreams(self) -> Sequence[Upstream]:
        return self._fleet.upstreams

    def name_of(self, server: str, tool: str) -> tuple[str, Sequence[str]]:
        """Return the server's own name for the tool `server__tool`. If there is no such tool,
        return `tool` and the names of the server's known tools."""
        target = self._catalog.resolve(f"{server}__{tool}")
        if target is not None and target.upstream is not None:
            return target.tool, ()
        upstreams = [upstream for upstream in self.upstreams if upstream.name == server]
        names = (tool.value("name") for upstream in upstreams for tool in upstream.tools)
        return tool, [name for name in names if isinstance(name, str)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the servers inside the block. Afterwards, abandon the calls whose clients have not
        yet answered a question of a server."""
        try:
            async with self._fleet.running():
                yield
        finally:
            await self._resources.aclose()
            await self.router.aclose()

    def apply_options(self, options: GatewayOptions) -> None:
        """Apply changed options."""
        self._options = options
        for upstream in self.upstreams:
            upstream.options = options

    async def replace_servers(self, servers: Sequence[ServerOptions]) -> None:
        """Replace the servers. A replaced server gets a minute to finish its calls. The tool list
        is rebuilt in any case, because the configuration of individual tools may have changed.
        """
        listing_before, changed = self._catalog.listing, await self._fleet.replace(servers)
        await self._catalog.refresh(force=True)
        if changed or self._catalog.listing != listing_before:
            await self.router.tools_changed()
        if changed:
            await self._announce_lists(LISTED_KINDS)

    async def serve(self, lines: AsyncIterator[Line], sink: Sink, hello: Hello) -> None:
        """Serve one agent on stdio until it disconnects or a signal arrives."""
        self._hello = hello
        front = StdioFront(self.router, self.audience, hello)
        async with self.running():
            introducing = asyncio.create_task(self._introduce(), name="introduction")
            serving = asyncio.create_task(front.serve(lines, sink), name="front")
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._end, serving)
            try:
                await serving
            except asyncio.CancelledError:
                LOG.info("a signal ended the gateway")
            finally:
                introducing.cancel()

    async def _introduce(self) -> None:
        """Wait until each server has started or failed. Then save their combined offer, with which
        the next run can answer `initialize` immediately. An offer without a server that is only
        slow would hide that server's instructions in the next run.
        """
        await self._resources.settled(2 * self._options.connect_timeout_seconds)
        self._records.save_offer(offer_of(self.upstreams))

    def _end(self, serving: "asyncio.Task[None]") -> None:
        # An agent may kill the gateway half a second after the signal.
        for upstream in self.upstreams:
            upstream.grace_seconds = HURRIED_GRACE_SECONDS
        serving.cancel()

    def http(self) -> HttpFront:
        """The ASGI application for `/mcp`. The clients are not known in advance, so all client
        capabilities are declared to the servers."""
        self._hello = Hello(capabilities=EVERY_CLIENT)
        return HttpFront(self.router, self.audience)

    def _launch(self, server: ServerOptions) -> Upstream:
        upstream = Upstream(server, self._options, self._connecting, self._changed, self.audience)
        upstream.tools = self._records.tool_lists.for_server(server)
        return upstream

    async def _changed(self, upstream: Upstream) -> None:
        await self._catalog.refresh()
        await self.router.tools_changed()
        offered = [kind for kind in LISTED_KINDS if upstream.about.offers(kind)]
        await self._announce_lists(offered)
        if all(server.state is not ServerState.STARTING for server in self.upstreams):
            self._records.save_offer(offer_of(self.upstreams))
        if upstream.state is ServerState.READY:
            save = self._records.tool_lists.save
            await asyncio.to_thread(save, upstream.server, upstream.tools)
        LOG.info("upstream %s: %s, %d tools", upstream.name, upstream.state, len(upstream.tools))

    async def _announce_lists(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            if self._resources.was_listed(kind):
                await self.audience.announce(f"notifications/{kind}/list_changed")
