"""The upstreams of a gateway. They start and stop together, and can be replaced while calls are in
flight.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice

from upwell.gateway.clients import Client
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.upstreams.connection import LISTS, Connecting, Connection
from upwell.gateway.upstreams.supervisor import Upstream
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import UpstreamError
from upwell.ground.text.format import counted
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Ping
from upwell.wire.peer import Message


class _NoClients:
    def client_capabilities(self) -> bytes:
        return b"{}"

    async def notified(self, message: Message, clients: list[Client]) -> None:
        return None

    def only_client(self) -> Client | None:
        return None


async def probe(server: ServerOptions, options: GatewayOptions, connecting: Connecting) -> Ping:
    """Start a server, read its lists, stop it, and report the outcome."""
    try:
        connection = await connecting(server, options, _NoClients())
        try:
            tools = await connection.handshake(options.connect_timeout_seconds)
            await _read_lists(connection, options.list_wait_seconds)
        finally:
            await connection.aclose()
    except UpstreamError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    faults = {**connection.left_out, **connection.about.faults}
    return Ping(ok=True, detail=counted(len(tools), "tool") + _left_out(faults))


def _left_out(faults: Mapping[str, str]) -> str:
    if not faults:
        return ""
    shown = [f"{label} ({fault})" for label, fault in islice(faults.items(), MAX_SHOWN_FAULTS)]
    if len(faults) > MAX_SHOWN_FAULTS:
        shown.append(f"{len(faults) - MAX_SHOWN_FAULTS} more")
    return f"; left out: {', '.join(shown)}"


async def _read_lists(connection: Connection, seconds: float) -> None:
    """Read the lists other than tools, to find the definitions that are left out."""
    try:
        async with asyncio.timeout(seconds):
            for kind, method, member in LISTS:
                if connection.about.offers(kind):
                    await connection.every(method, member)
    except (TimeoutError, UpstreamError) as error:
        connection.left_out["its prompts and resources"] = str(error) or "it does not list them"


MAX_SHOWN_FAULTS = 10
RETIRE_SECONDS = 60.0
_POLL_SECONDS = 0.1


class Fleet:
    """The upstreams, in the order of the configuration. `launch` creates an upstream without
    starting it."""

    def __init__(
        self, servers: Sequence[ServerOptions], launch: Callable[[ServerOptions], Upstream]
    ) -> None:
        self._launch = launch
        self.upstreams = [launch(server) for server in servers if server.enabled]
        self._supervisors = BackgroundTasks("upstreams")
        self._runs: dict[Upstream, asyncio.Task[None]] = {}
        self._retiring = BackgroundTasks("retiring upstreams")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the servers inside the block."""
        for upstream in self.upstreams:
            self._start(upstream)
        try:
            yield
        finally:
            # Cancel all tasks before awaiting any, so that all servers stop concurrently.
            self._retiring.cancel()
            await self._supervisors.aclose()
            await self._retiring.aclose()

    async def replace(self, servers: Sequence[ServerOptions]) -> bool:
        """Replace the servers. An unchanged server keeps running. A changed server runs until its
        successor is ready or has failed. A removed server may finish its calls. Returns False if
        nothing changed.
        """
        enabled = [server for server in servers if server.enabled]
        if enabled == [upstream.server for upstream in self.upstreams]:
            return False
        unchanged = {
            present.name: present for present in self.upstreams if present.server in enabled
        }
        after = [unchanged.get(server.name) or self._launch(server) for server in enabled]
        fresh = [upstream for upstream in after if upstream not in self._runs]
        for upstream in fresh:
            self._start(upstream)
        await asyncio.gather(*(upstream.settled() for upstream in fresh))
        removed = [upstream for upstream in self.upstreams if upstream not in after]
        self.upstreams = after
        for upstream in removed:
            self._retiring.start(self._retire(upstream))
        return True

    def _start(self, upstream: Upstream) -> None:
        name = f"upstream {upstream.name}"
        self._runs[upstream] = self._supervisors.start(upstream.run(), name=name)

    async def _retire(self, upstream: Upstream) -> None:
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                while upstream.busy:
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            LOG.warning("ending upstream %s with calls in flight", upstream.name)
        run = self._runs.pop(upstream)
        run.cancel()
        await asyncio.wait({run})
