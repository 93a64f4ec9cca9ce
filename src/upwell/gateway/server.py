"""The gateway as a whole: its upstreams in the background, its front on stdio."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from upwell.gateway.audience import Audience
from upwell.gateway.catalog import Catalog, LocalTools
from upwell.gateway.connection import Connecting
from upwell.gateway.definitions import Definitions
from upwell.gateway.desk import Desk
from upwell.gateway.directory import Directory, LocalResources
from upwell.gateway.eras import EVERY_CLIENT
from upwell.gateway.fleet import Fleet
from upwell.gateway.following import Following
from upwell.gateway.front import Front
from upwell.gateway.greeting import Hello, Known, known_now
from upwell.gateway.http import HttpFront
from upwell.gateway.lists import ToolLists
from upwell.gateway.offerings import Offerings
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.upstream import State, Upstream
from upwell.ground.trace import LOG
from upwell.wire.lines import Line, Sink

KINDS = ("prompts", "resources")
HURRIED_SECONDS = 0.2
"""What a server has for each step of its end where the gateway was asked to end by a signal."""


class Gateway:
    """Startup, main loop, shutdown of one gateway. `learned` is told what the servers offer, once
    all have said so; `lists` keeps what each one lists for its next start."""

    def __init__(
        self,
        servers: Sequence[ServerOptions],
        own: LocalTools,
        pipeline: Pipeline,
        options: GatewayOptions,
        *,
        resources: LocalResources,
        may_compress: Callable[[str, str], bool],
        connecting: Connecting,
        learned: Callable[[Known], None] = lambda _: None,
        lists: ToolLists | None = None,
        definitions: Definitions | None = None,
    ) -> None:
        self._learned = learned
        self._lists = lists or ToolLists()
        self._options = options
        self._hello = Hello()
        self.audience = Audience(lambda: self._hello.capabilities)
        self._connecting = connecting
        self._fleet = Fleet(servers, self._launched)
        self._definitions = definitions or Definitions()
        self._catalog = Catalog(lambda: self.upstreams, own, may_compress, self._definitions)
        self.directory = Directory(lambda: self.upstreams, resources, options.list_wait_seconds)
        self.desk = Desk(
            self._catalog, lambda: self.upstreams, own, pipeline, self.audience, self.directory
        )
        self.desk.learn(Offerings(self.desk, self.directory, resources).methods())
        self.desk.learn(Following(self.directory, self.audience).methods())

    @property
    def upstreams(self) -> Sequence[Upstream]:
        """The servers of the moment."""
        return self._fleet.upstreams

    def running(self) -> AbstractAsyncContextManager[None]:
        """While the servers are kept running."""
        return self._fleet.running()

    def obey(self, options: GatewayOptions) -> None:
        """Hold these limits from now on; the size of lines, of each server from its next start."""
        self._options = options
        self.directory.wait_seconds = options.list_wait_seconds
        self._definitions.most_tokens = options.lazy_tools_tokens
        for upstream in self.upstreams:
            upstream.options = options

    async def exchange(self, servers: Sequence[ServerOptions]) -> None:
        """Run these servers from now on; no call under way is lost. The list of tools is made anew:
        what was said about tools may have changed as well."""
        before, changed = self._catalog.listing, await self._fleet.exchange(servers)
        await self._catalog.refresh(anew=True)
        if changed or self._catalog.listing != before:
            await self.desk.tools_changed()
        if changed:
            for kind in KINDS:
                if self.directory.shown(kind):
                    await self.audience.announce(f"notifications/{kind}/list_changed")

    async def serve(self, lines: AsyncIterator[Line], sink: Sink, hello: Hello) -> None:
        """Serve one agent on stdio until it closes its side or a signal asks us to end."""
        self._hello = hello
        front = Front(self.desk, self.directory, self.audience, hello)
        async with self.running():
            serving = asyncio.create_task(front.serve(lines, sink), name="front")
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._end, serving)
            try:
                await serving
            except asyncio.CancelledError:
                LOG.info("asked to end")

    def _end(self, serving: "asyncio.Task[None]") -> None:
        """A host that sends a signal kills us half a second later: its servers get less time."""
        for upstream in self.upstreams:
            upstream.grace_seconds = HURRIED_SECONDS
        serving.cancel()

    def http(self) -> HttpFront:
        """The ASGI application for `/mcp`. Any client may come, so servers are told of all that a
        client can be asked; each is asked only what it offers itself."""
        self._hello = Hello(capabilities=EVERY_CLIENT)
        return HttpFront(self.desk, self.directory, self.audience)

    def _launched(self, server: ServerOptions) -> Upstream:
        """A server, with what it listed last until it says what it lists now."""
        upstream = Upstream(server, self._options, self._connecting, self._changed, self.audience)
        upstream.tools = self._lists.of(server)
        return upstream

    async def _changed(self, upstream: Upstream) -> None:
        """A server came, went, or has other tools."""
        await self._catalog.refresh()
        await self.desk.tools_changed()
        for kind in KINDS:
            if upstream.about.offers(kind) and self.directory.shown(kind):
                await self.audience.announce(f"notifications/{kind}/list_changed")
        if all(one.about.version for one in self.upstreams):
            self._learned(known_now(self.upstreams))
        if upstream.state is State.READY:
            await asyncio.to_thread(self._lists.keep, upstream.server, upstream.tools)
        LOG.info("upstream %s: %s, %d tools", upstream.name, upstream.state, len(upstream.tools))
