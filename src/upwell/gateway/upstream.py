"""One upstream server, kept running: started, greeted, called, and restarted for ever."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import StrEnum

from upwell.gateway.audience import Audience
from upwell.gateway.client import NOBODY, Client
from upwell.gateway.connection import Connecting, Connection, too_slow
from upwell.gateway.eras import Introduction, unstamped
from upwell.gateway.inflight import Patience
from upwell.gateway.news import News
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.ground.errors import UpstreamError, UpstreamLocked, UpstreamUnavailable
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.peer import Message
from upwell.wire.rawjson import NotJson, RawObject, dumps

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 30.0
REFRESH_SECONDS = 0.2
AWAY_SECONDS = (0.2, 0.5, 1.0, 2.0)
"""So long a call without effects waits each time for a server over HTTP that died over it."""
GRACE_SECONDS = 2.0
"""So long a server may take to end when its input ends, and again when it is asked to."""


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Backoff:
    """How long to wait before the next start, for ever: twice as long each time, from the beginning
    after a life of good health."""

    def __init__(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS

    def after(self, lived_seconds: float) -> float:
        """Seconds to wait after a life of `lived_seconds`."""
        if lived_seconds > HEALTHY_SECONDS:
            self._seconds = FIRST_BACKOFF_SECONDS
        seconds = self._seconds
        self._seconds = min(MAX_BACKOFF_SECONDS, seconds * 2)
        return seconds


class Upstream:
    """Keeps one server running and speaks to it.

    `run` supervises until cancelled: start, greet, list, serve, and after an end again, waiting
    0.2 s to 30 s, longer each time; 30 s of health set the wait back. A call that finds the server
    down cuts the wait short. `on_change` is told whenever the tools may be different, `audience`
    of everything else that the server says.
    """

    def __init__(
        self,
        server: ServerOptions,
        options: GatewayOptions,
        connecting: Connecting,
        on_change: Callable[["Upstream"], Awaitable[None]],
        audience: Audience,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.server = server
        self.name = server.name
        self.prefix = server.name if server.prefix else ""
        self.state = State.STARTING
        self.tools: tuple[RawObject, ...] = ()
        self.about = Introduction()
        self.failure: UpstreamError | None = None
        self.followed: set[str] = set()
        self.declared = audience.declared
        self.only_client = audience.only_client
        self.options = options
        self.grace_seconds = GRACE_SECONDS
        self._connecting = connecting
        self._on_change = on_change
        self._audience = audience
        self._clock = clock
        self._connection: Connection | None = None
        self._news: News | None = None
        self.busy = 0
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._changed_again = False

    async def run(self) -> None:
        """Supervise until cancelled."""
        backoff = Backoff()
        try:
            while True:
                began = self._clock.monotonic()
                await self._live()
                await self._on_change(self)
                await _rest(self._wake, backoff.after(self._clock.monotonic() - began), self.name)
        finally:
            self.state = State.STOPPED
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed. One that wanted a login tries again first:
        somebody may have logged in."""
        if self.state is State.FAILED and isinstance(self.failure, UpstreamLocked):
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()

    async def call(
        self, method: str, params: RawObject, client: Client = NOBODY, *, again: bool = False
    ) -> Reply:
        """Ask the server for a client and wait for its answer, at most the call timeout; progress
        begins the time anew. `again`: the call has no effects, so it is made once more when the
        server dies over it.

        Raises:
            UpstreamError: it is not there, died, was too slow, has too much to do, or did not speak
                MCP. The message names it and says how it ended.
        """
        most = self.server.max_in_flight or self.options.max_in_flight
        if self.busy >= most:
            raise UpstreamUnavailable(
                f"upstream {self.name!r} has {most} calls under way",
                server=self.name,
                hint=f"call again later, or raise max_in_flight of [server.{self.name}]",
            )
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        self.busy += 1
        try:
            async with asyncio.timeout(seconds) as timeout:
                return await self._called(method, params, client, Patience(timeout, seconds), again)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None
        finally:
            self.busy -= 1

    async def every(self, method: str, member: str, client: Client) -> tuple[RawObject, ...]:
        """Every page of a list, where the server is up and knows the method.

        Raises:
            UpstreamError: as `call`.
        """
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await (await self._ready()).every(method, member, client)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None

    async def follow(self, uri: str, client: Client, *, wanted: bool = True) -> Reply:
        """Have the server tell when a resource changes, also after a restart; or no longer.

        Raises:
            UpstreamError: as `call`.
        """
        self.followed = self.followed | {uri} if wanted else self.followed - {uri}
        if self._news is not None and self.about.modern:
            self._news.follow(self.followed)
            return Reply(result=b"{}")
        method = "resources/subscribe" if wanted else "resources/unsubscribe"
        return await self.call(method, _uri(uri), client)

    def tell(self, method: str, params: bytes) -> None:
        """Pass a client's notification on, where the server is up; without waiting."""
        if self._connection is not None and self.state is State.READY and not self.about.modern:
            self._connection.tell(method, params)

    async def _called(
        self, method: str, params: RawObject, client: Client, patience: Patience, again: bool
    ) -> Reply:
        connection = await self._ready()
        try:
            return await connection.ask(method, params, client, patience)
        except UpstreamUnavailable:
            if not again:
                raise
        connection = await self._there_again(connection)
        return await connection.ask(method, params, client, patience)

    async def _there_again(self, connection: Connection) -> Connection:
        """The server, when it can be reached again: in the same life where but one exchange broke
        off, else in the next. One with an address is started by somebody else, and waited for."""
        if self._connection is connection:
            if await connection.is_there():
                return connection
            await self._ended.wait()
        for seconds in AWAY_SECONDS if self.server.url else ():
            try:
                return await self._ready()
            except UpstreamLocked:
                raise
            except UpstreamUnavailable:
                await asyncio.sleep(seconds)
        return await self._ready()

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

    async def _live(self) -> None:
        """One life of the server, from start to end. Sets state and failure, does not raise."""
        self.state = State.STARTING
        self._settled.clear()
        self._ended.clear()
        try:
            self._connection = connection = await self._connecting(self.server, self.options, self)
            self.tools = await connection.greet(self.options.connect_timeout_seconds)
            self.about = connection.about
            self.state, self.failure = State.READY, None
            self._settled.set()
            await self._on_change(self)
            await self._resume(connection)
            await connection.ended()
            self._fail(await connection.obituary("ended"))
        except UpstreamError as error:
            self._fail(error)
        except Exception as error:
            LOG.exception("upstream %s: a fault of ours", self.name)
            self._fail(
                UpstreamUnavailable(f"upstream {self.name!r} failed: {error!r}", server=self.name)
            )
        finally:
            if self._news is not None:
                self._news.close()
            ended, self._connection, self._news = self._connection, None, None
            self._ended.set()
            if ended is not None:
                await ended.aclose(self.grace_seconds)

    async def _resume(self, connection: Connection) -> None:
        """Ask a server that was started for what its clients asked of the one before."""
        self._news = News(connection)
        self._news.follow(self.followed)
        level = self._audience.log_level()
        asked = [("resources/subscribe", _uri(uri)) for uri in sorted(self.followed)]
        if level and self.about.offers("logging"):
            asked.append(("logging/setLevel", _object(level=level)))
        if self.about.modern or not asked:
            return
        try:
            async with asyncio.timeout(self.options.connect_timeout_seconds):
                await asyncio.gather(*(connection.ask(*request) for request in asked))
        except (TimeoutError, UpstreamError) as error:
            LOG.warning("upstream %s: it does not take up again: %s", self.name, error)

    def _fail(self, error: UpstreamError) -> None:
        known = self.failure is not None and self.failure.message == error.message
        LOG.log(logging.DEBUG if known else logging.WARNING, "%s", error)
        self.state, self.failure = State.FAILED, error
        self._settled.set()

    async def heard(self, message: Message, clients: list[Client]) -> None:
        """The server notified us of something."""
        if message.method != "notifications/tools/list_changed":
            await self._audience.heard(_plain(message), clients)
            return
        self._changed_again = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Read the changed list of tools; once more if it changed meanwhile."""
        while self._changed_again and self._connection is not None:
            self._changed_again = False
            try:
                async with asyncio.timeout(self.options.connect_timeout_seconds):
                    self.tools = await self._connection.tools()
            except (TimeoutError, UpstreamError) as error:
                LOG.warning("upstream %s: its changed tools cannot be read: %s", self.name, error)
                return
            await self._on_change(self)
            await asyncio.sleep(REFRESH_SECONDS)


async def _rest(wake: asyncio.Event, seconds: float, name: str) -> None:
    """Wait for that long, or until somebody wants the server."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        LOG.debug("restarting %s after %.1f s", name, seconds)
    wake.clear()


def _object(**members: str) -> RawObject:
    return RawObject.parse(dumps(members))


def _uri(uri: str) -> RawObject:
    return _object(uri=uri)


def _plain(message: Message) -> Message:
    """A notification without the name of the stream it came on."""
    try:
        params = RawObject.parse(message.params)
    except NotJson:
        return message
    if "_meta" not in params:
        return message
    body = message.body.replaced("params", unstamped(params).encode())
    return Message(body=body, method=message.method)
