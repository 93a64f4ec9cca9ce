"""Keeps one upstream server running: starts it, connects to it, calls it, and restarts it as often
as necessary."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum

from upwell.gateway.clients import NOBODY, Audience, Client
from upwell.gateway.eras import Introduction, listen_params, unstamped
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.upstreams.connection import Connecting, Connection, too_slow
from upwell.gateway.upstreams.inbound import CallTimeout
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import UpstreamError, UpstreamLocked, UpstreamUnavailable
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import Message
from upwell.wire.rawjson import NotJson, RawObject, dumps


class ListenStream:
    """The `subscriptions/listen` request to a modern server. A server of the handshake era sends
    its notifications without such a request."""

    def __init__(self, connection: Connection, on_gap: Callable[[], None]) -> None:
        self._connection = connection
        self._on_gap = on_gap
        self._tasks = BackgroundTasks("listening to an upstream")

    def open(self, uris: Iterable[str]) -> None:
        """Listen for changed lists and for updates of these resources, in place of the previous
        stream."""
        about = self._connection.about
        params = listen_params(about.capabilities, uris) if about.modern else None
        self._tasks.cancel()
        if params is not None:
            self._tasks.start(self._listen(params))

    def cancel(self) -> None:
        self._tasks.cancel()

    async def aclose(self) -> None:
        await self._tasks.aclose()

    async def _listen(self, params: RawObject) -> None:
        """Keep a stream open: listen again whenever it ends, which happens often on HTTP. `on_gap`
        is called each time, because notifications may have been missed in between."""
        wait_seconds = LISTEN_AGAIN_SECONDS
        while True:
            began = time.monotonic()
            try:
                reply = await self._connection.ask("subscriptions/listen", params)
                if reply.error:
                    LOG.info("an upstream refuses to notify: %s", redacted_start(reply.error, 200))
                    return
            except UpstreamError as error:
                LOG.debug("listening to an upstream ended: %s", error)
            has_lasted = time.monotonic() - began > HEALTHY_SECONDS
            wait_seconds = LISTEN_AGAIN_SECONDS if has_lasted else wait_seconds * 2
            await asyncio.sleep(min(wait_seconds, MAX_BACKOFF_SECONDS))
            self._on_gap()


LISTEN_AGAIN_SECONDS = 0.25
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 30.0
REFRESH_SECONDS = 0.2
"""The pause between two reads of a list that keeps changing."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
"""The pauses between attempts to reconnect to a server over HTTP, before a call is repeated."""
PING_PAUSE_SECONDS = 0.2
"""The pause between two pings of a server that answers neither the call nor the ping."""
GRACE_SECONDS = 2.0
"""How long a server has to exit after its stdin is closed, and again after SIGTERM."""


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Backoff:
    """The wait before the next start. It doubles each time, and is reset after a server has lived
    for more than `HEALTHY_SECONDS`."""

    def __init__(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS

    def after(self, lived_seconds: float) -> float:
        """The seconds to wait before restarting a server that has lived for `lived_seconds`."""
        if lived_seconds > HEALTHY_SECONDS:
            self._seconds = FIRST_BACKOFF_SECONDS
        seconds = self._seconds
        self._seconds = min(MAX_BACKOFF_SECONDS, seconds * 2)
        return seconds


class Upstream:
    """Keeps one server running and sends requests to it.

    `run` supervises until cancelled: start, handshake, list, serve. When the server goes down, it
    is restarted after a wait. The wait doubles each time, from 0.2 s up to 30 s, and is 0.2 s again
    if the server has lived for more than 30 s. A call that finds the server down cuts the wait
    short. `on_change` is called whenever the tools may have changed; every other notification goes
    to `audience`.
    """

    def __init__(
        self,
        server: ServerOptions,
        options: GatewayOptions,
        connecting: Connecting,
        on_change: Callable[["Upstream"], Awaitable[None]],
        audience: Audience,
    ) -> None:
        self.server = server
        self.name = server.name
        self.prefix = server.name if server.prefix else ""
        self.state = State.STARTING
        self.tools: tuple[RawObject, ...] = ()
        self.about = Introduction()
        self.failure: UpstreamError | None = None
        self.subscribed_uris: set[str] = set()
        self.client_capabilities = audience.client_capabilities
        self.only_client = audience.only_client
        self.options = options
        self.grace_seconds = GRACE_SECONDS
        self._connecting = connecting
        self._on_change = on_change
        self._audience = audience
        self._connection: Connection | None = None
        self._stream: ListenStream | None = None
        self._tasks = BackgroundTasks(f"upstream {server.name}")
        self.busy = 0
        self._settled = asyncio.Event()
        self._ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None
        self._list_changed = False

    async def run(self) -> None:
        """Supervise until cancelled."""
        backoff = Backoff()
        try:
            while True:
                began = time.monotonic()
                await self._live()
                await self._on_change(self)
                await _rest(self._wake, backoff.after(time.monotonic() - began), self.name)
        finally:
            self.state = State.STOPPED
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed. A server that failed for lack of a login is
        tried again first, because the user may have signed in since."""
        if self.state is State.FAILED and isinstance(self.failure, UpstreamLocked):
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()

    async def call(
        self, method: str, params: RawObject, client: Client = NOBODY, *, idempotent: bool = False
    ) -> Reply:
        """Send a client's request and wait for the answer, for at most the call timeout; progress
        restarts the timeout. An `idempotent` request is repeated once if the server dies during it.

        Raises:
            UpstreamError: the server is down, died, was too slow, is busy, or did not speak MCP.
                The message includes the server's name and how it ended.
        """
        limit = self.server.max_in_flight or self.options.max_in_flight
        if self.busy >= limit:
            raise UpstreamUnavailable(
                f"upstream {self.name!r} has {limit} calls in flight",
                server=self.name,
                hint=f"call again later, or raise max_in_flight of [server.{self.name}]",
            )
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        self.busy += 1
        try:
            async with asyncio.timeout(seconds) as timeout:
                restartable = CallTimeout(timeout, seconds)
                return await self._call(method, params, client, restartable, idempotent=idempotent)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None
        finally:
            self.busy -= 1

    async def every(self, method: str, member: str, client: Client) -> tuple[RawObject, ...]:
        """The entries of every page of a list; none if the server does not support the method.

        Raises:
            UpstreamError: as `call`.
        """
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                return await (await self._ready()).every(method, member, client)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None

    async def subscribe(self, uri: str, client: Client) -> Reply:
        """Subscribe to a resource; the subscription outlives restarts of the server.

        Raises:
            UpstreamError: as `call`.
        """
        self.subscribed_uris = self.subscribed_uris | {uri}
        return await self._update_subscription("resources/subscribe", uri, client)

    async def unsubscribe(self, uri: str, client: Client) -> Reply:
        """End a subscription.

        Raises:
            UpstreamError: as `call`.
        """
        self.subscribed_uris = self.subscribed_uris - {uri}
        return await self._update_subscription("resources/unsubscribe", uri, client)

    def notify(self, method: str, params: bytes) -> None:
        """If the server is up, pass a client's notification on to it, without waiting."""
        if self._connection is not None and self.state is State.READY and not self.about.modern:
            self._connection.notify(method, params)

    async def _update_subscription(self, method: str, uri: str, client: Client) -> Reply:
        if self._stream is not None and self.about.modern:
            self._stream.open(self.subscribed_uris)
            return Reply(result=b"{}")
        return await self.call(method, _uri(uri), client)

    async def _call(
        self,
        method: str,
        params: RawObject,
        client: Client,
        timeout: CallTimeout,
        *,
        idempotent: bool,
    ) -> Reply:
        connection = await self._ready()
        try:
            return await connection.ask(method, params, client, timeout)
        except UpstreamUnavailable:
            if not idempotent:
                raise
        connection = await self._reconnected(connection)
        return await connection.ask(method, params, client, timeout)

    async def _reconnected(self, connection: Connection) -> Connection:
        """A usable connection after an exchange has broken off: the same one if the server is still
        alive, otherwise the next one. A server with an address is not started by us, so a few
        attempts are made before it counts as down.
        """
        while self._connection is connection:
            if await connection.is_alive():
                return connection
            # A ping can fail before the connection has ended, if the server is going down or is
            # busy. It is repeated until the server answers or the connection ends.
            await _rest_until(self._ended, PING_PAUSE_SECONDS)
        for seconds in RETRY_SECONDS if self.server.url else ():
            try:
                return await self._ready()
            except UpstreamLocked:
                raise
            except UpstreamUnavailable:
                await asyncio.sleep(seconds)
        return await self._ready()

    async def _ready(self) -> Connection:
        """The connection to the server. If the server is down, it is started at once, without the
        usual wait."""
        if self.state is State.FAILED:
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()
        if self.state is State.READY and self._connection is not None:
            return self._connection
        raise self.failure or UpstreamUnavailable(
            f"upstream {self.name!r} is not running",
            server=self.name,
            hint="`upwell doctor` shows why",
        )

    async def _live(self) -> None:
        """Run the server once, from start to end. Sets `state` and `failure`; never raises."""
        self.state = State.STARTING
        self._settled.clear()
        self._ended.clear()
        try:
            self._connection = connection = await self._connecting(self.server, self.options, self)
            self.tools = await connection.handshake(self.options.connect_timeout_seconds)
            self.about = connection.about
            self.state, self.failure = State.READY, None
            self._settled.set()
            await self._on_change(self)
            await self._restore(connection)
            await connection.ended()
            self._fail(await connection.exit_reason("ended"))
        except UpstreamError as error:
            self._fail(error)
        except Exception as error:
            LOG.exception("upstream %s: supervising it failed inside upwell", self.name)
            self._fail(
                UpstreamUnavailable(f"upstream {self.name!r} failed: {error!r}", server=self.name)
            )
        finally:
            ended, self._connection = self._connection, None
            stream, self._stream = self._stream, None
            # Set before anything is awaited, because a call that waits for the end must not wait
            # for the whole shutdown as well.
            self._ended.set()
            # Cancelled now but awaited only after the server's end, because a server that reads
            # nothing would hold up the cancellations. An agent that exits does not wait long.
            self._tasks.cancel()
            if stream is not None:
                stream.cancel()
            if ended is not None:
                await ended.aclose(self.grace_seconds)
            if stream is not None:
                await stream.aclose()
            await self._tasks.drain()

    async def _restore(self, connection: Connection) -> None:
        """Listen to a server that has just started, and give it the clients' subscriptions and log
        level."""
        self._stream = ListenStream(connection, self._tools_changed)
        self._stream.open(self.subscribed_uris)
        level = self._audience.log_level()
        requests = [("resources/subscribe", _uri(uri)) for uri in sorted(self.subscribed_uris)]
        if level and self.about.offers("logging"):
            requests.append(("logging/setLevel", _object(level=level)))
        if self.about.modern or not requests:
            return
        try:
            async with asyncio.timeout(self.options.connect_timeout_seconds):
                await asyncio.gather(*(connection.ask(*request) for request in requests))
        except (TimeoutError, UpstreamError) as error:
            LOG.warning("upstream %s: subscriptions are not restored: %s", self.name, error)

    def _fail(self, error: UpstreamError) -> None:
        is_repeated = self.failure is not None and self.failure.message == error.message
        LOG.log(logging.DEBUG if is_repeated else logging.WARNING, "%s", error)
        self.state, self.failure = State.FAILED, error
        self._settled.set()

    async def notified(self, message: Message, clients: list[Client]) -> None:
        """Handle a notification from the server."""
        if message.method != "notifications/tools/list_changed":
            await self._audience.relay(_without_stream(message), clients)
            return
        self._tools_changed()

    def _tools_changed(self) -> None:
        self._list_changed = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._tasks.start(self._refresh())

    async def _refresh(self) -> None:
        """Read the changed list of tools, and read it again if it changes in the meantime."""
        while self._list_changed and self._connection is not None:
            self._list_changed = False
            try:
                async with asyncio.timeout(self.options.connect_timeout_seconds):
                    self.tools = await self._connection.tools()
            except (TimeoutError, UpstreamError) as error:
                LOG.warning("upstream %s: its changed tools cannot be read: %s", self.name, error)
                return
            await self._on_change(self)
            await asyncio.sleep(REFRESH_SECONDS)


async def _rest(wake: asyncio.Event, seconds: float, name: str) -> None:
    """Wait for `seconds`, or until a call needs the server."""
    if not await _rest_until(wake, seconds):
        LOG.debug("restarting %s after %.1f s", name, seconds)
    wake.clear()


async def _rest_until(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `seconds`, or until `event` is set. Returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _object(**members: str) -> RawObject:
    return RawObject.parse(dumps(members))


def _uri(uri: str) -> RawObject:
    return _object(uri=uri)


def _without_stream(message: Message) -> Message:
    """A notification without the id of its listen stream."""
    try:
        params = RawObject.parse(message.params)
    except NotJson:
        return message
    if "_meta" not in params:
        return message
    body = message.body.replaced("params", unstamped(params).encode())
    return Message(body=body, method=message.method)
