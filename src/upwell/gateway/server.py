"""The gateway as a whole: its upstreams in the background, its front on stdio."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from upwell.gateway.catalog import Catalog, LocalTools
from upwell.gateway.front import Front
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.resources import LocalResources, ResourceFront
from upwell.gateway.upstream import Upstream
from upwell.ground.trace import LOG
from upwell.wire.lines import Line, Sink


class Gateway:
    """Startup, main loop, shutdown of one gateway."""

    def __init__(
        self,
        servers: Sequence[ServerOptions],
        own: LocalTools,
        pipeline: Pipeline,
        options: GatewayOptions,
        *,
        resources: LocalResources,
        may_compress: Callable[[str, str], bool],
        environment: Mapping[str, str],
    ) -> None:
        self.upstreams = [
            Upstream(server, options, environment, self._changed)
            for server in servers
            if server.enabled
        ]
        self._catalog = Catalog(self.upstreams, own, may_compress)
        methods = ResourceFront(resources).methods()
        self._front = Front(self._catalog, self.upstreams, own, pipeline, options, methods)

    async def serve(self, lines: AsyncIterator[Line], sink: Sink) -> None:
        """Serve until the agent closes its side or a signal asks us to end."""
        running = [
            asyncio.create_task(upstream.run(), name=f"upstream {upstream.name}")
            for upstream in self.upstreams
        ]
        serving = asyncio.create_task(self._front.serve(lines, sink), name="front")
        self._end_on_signals(serving)
        try:
            await serving
        except asyncio.CancelledError:
            LOG.info("asked to end")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _end_on_signals(self, serving: "asyncio.Task[None]") -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)

    async def _changed(self, upstream: Upstream) -> None:
        self._catalog.rebuild()
        await self._front.tools_changed()
        LOG.info("upstream %s: %s, %d tools", upstream.name, upstream.state, len(upstream.tools))
