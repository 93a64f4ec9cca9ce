"""One upstream server, kept running: started, greeted, called, and restarted for ever."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum

from upwell.gateway.connection import NO_CAPABILITIES, Connection, connect, too_slow
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.ground.errors import UpstreamError, UpstreamUnavailable
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.peer import Message
from upwell.wire.rawjson import RawObject

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 30.0
REFRESH_SECONDS = 0.2


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Upstream:
    """Keeps one server running and speaks to it.

    `run` supervises until cancelled: start, greet, list, serve, and after an end again, waiting
    0.2 s to 30 s, longer each time; 30 s of health set the wait back. A call that finds the server
    down cuts the wait short. `on_change` is told whenever the tools may be different.
    """

    def __init__(
        self,
        server: ServerOptions,
        options: GatewayOptions,
        environment: Mapping[str, str],
        on_change: Callable[["Upstream"], Awaitable[None]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.server = server
        self.name = server.name
        self.state = State.STARTING
        self.tools: tuple[RawObject, ...] = ()
        self.failure: UpstreamError | None = None
        self._options = options
        self._environment = environment
        self._on_change = on_change
        self._clock = clock
        self._connection: Connection | None = None
        self._settled = asyncio.Event()
        self._wake = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._changed_again = False

    async def run(self) -> None:
        """Supervise until cancelled."""
        backoff = FIRST_BACKOFF_SECONDS
        try:
            while True:
                began = self._clock.monotonic()
                await self._live()
                await self._on_change(self)
                if self._clock.monotonic() - began > HEALTHY_SECONDS:
                    backoff = FIRST_BACKOFF_SECONDS
                await self._pause(backoff)
                backoff = min(MAX_BACKOFF_SECONDS, backoff * 2)
        finally:
            self.state = State.STOPPED
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        await self._settled.wait()

    async def call(
        self, method: str, params: RawObject, capabilities: bytes = NO_CAPABILITIES
    ) -> Reply:
        """Ask the server and wait for its answer, at most the call timeout.

        Raises:
            UpstreamError: it is not there, died, was too slow, or did not speak MCP. The message
                names it and says how it ended.
        """
        seconds = self.server.call_timeout_seconds or self._options.call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                connection = await self._ready()
                return await connection.ask(method, params, capabilities)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None

    async def _ready(self) -> Connection:
        """The connection; a server that is down is started now, not when its wait is over."""
        if self.state is State.FAILED:
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()
        if self.state is State.READY and self._connection is not None:
            return self._connection
        raise self.failure or UpstreamUnavailable(
            f"upstream {self.name!r} is not running", server=self.name
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            LOG.debug("restarting %s after %.1f s", self.name, seconds)
        self._wake.clear()

    async def _live(self) -> None:
        """One life of the server, from start to end. Sets state and failure, does not raise."""
        self.state = State.STARTING
        self._settled.clear()
        try:
            self._connection = await connect(
                self.server, self._options, self._environment, self._notice
            )
            self.tools = await self._connection.greet(self._options.connect_timeout_seconds)
            self.state, self.failure = State.READY, None
            self._settled.set()
            await self._on_change(self)
            await self._connection.ended()
            self._fail(await self._connection.obituary("ended"))
        except UpstreamError as error:
            self._fail(error)
        except Exception as error:
            LOG.exception("upstream %s: a fault of ours", self.name)
            self._fail(
                UpstreamUnavailable(f"upstream {self.name!r} failed: {error!r}", server=self.name)
            )
        finally:
            if self._connection is not None:
                await self._connection.aclose()
                self._connection = None

    def _fail(self, error: UpstreamError) -> None:
        LOG.warning("%s", error)
        self.state, self.failure = State.FAILED, error
        self._settled.set()

    async def _notice(self, message: Message) -> None:
        if message.method != "notifications/tools/list_changed":
            return
        self._changed_again = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Read the changed list of tools; once more if it changed meanwhile."""
        while self._changed_again and self._connection is not None:
            self._changed_again = False
            try:
                async with asyncio.timeout(self._options.connect_timeout_seconds):
                    self.tools = await self._connection.list_tools()
            except (TimeoutError, UpstreamError) as error:
                LOG.warning("upstream %s: its changed tools cannot be read: %s", self.name, error)
                return
            await self._on_change(self)
            await asyncio.sleep(REFRESH_SECONDS)
