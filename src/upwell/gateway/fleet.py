"""The upstreams of a gateway: all started, all ended, and exchanged while calls go on."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from upwell.gateway.options import ServerOptions
from upwell.gateway.upstream import Upstream
from upwell.ground.trace import LOG

RETIRE_SECONDS = 60.0
_LOOK_SECONDS = 0.1


class Fleet:
    """Keeps `upstreams` in the order of the configuration. `launch` makes one of its options."""

    def __init__(
        self, servers: Sequence[ServerOptions], launch: Callable[[ServerOptions], Upstream]
    ) -> None:
        self._launch = launch
        self.upstreams = [launch(server) for server in servers if server.enabled]
        self._tasks: dict[Upstream, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the servers are kept running."""
        for upstream in self.upstreams:
            self._start(upstream)
        try:
            yield
        finally:
            tasks = [*self._retiring, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def exchange(self, servers: Sequence[ServerOptions]) -> bool:
        """Run these servers from now on. What did not change stays; what changed is replaced once
        its successor is up; what is gone finishes its calls first. False where nothing changed."""
        wanted = [server for server in servers if server.enabled]
        if wanted == [upstream.server for upstream in self.upstreams]:
            return False
        kept = {one.name: one for one in self.upstreams if one.server in wanted}
        after = [kept.get(server.name) or self._launch(server) for server in wanted]
        fresh = [upstream for upstream in after if upstream not in self._tasks]
        for upstream in fresh:
            self._start(upstream)
        await asyncio.gather(*(upstream.settled() for upstream in fresh))
        gone = [upstream for upstream in self.upstreams if upstream not in after]
        self.upstreams = after
        for upstream in gone:
            task = asyncio.create_task(self._retire(upstream))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        return True

    def _start(self, upstream: Upstream) -> None:
        self._tasks[upstream] = asyncio.create_task(
            upstream.run(), name=f"upstream {upstream.name}"
        )

    async def _retire(self, upstream: Upstream) -> None:
        """End a server when its calls are done, or have had their time."""
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                while upstream.busy:
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            LOG.warning("upstream %s still has calls under way and is ended", upstream.name)
        task = self._tasks.pop(upstream)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
