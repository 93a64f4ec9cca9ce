"""Starts upstream servers, keeps them running, and sends requests to them (`Upstream`, `Fleet`);
and tries one out (`probe()`).
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from itertools import islice

from upwell.gateway.clients import NOBODY, Audience, Client
from upwell.gateway.eras import Introduction, listen_params, unstamped
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.upstreams.connection import LISTS, Connecting, Connection, too_slow
from upwell.gateway.upstreams.inbound import CallTimeout
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import UpstreamError, UpstreamLocked, UpstreamUnavailable
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG, contained
from upwell.ground.types.rpc import Ping, Reply
from upwell.wire.peer import Message
from upwell.wire.rawjson import NotJson, RawObject, dumps

LISTEN_AGAIN_SECONDS = 0.25
FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 30.0
REFRESH_SECONDS = 0.2
"""The pause between two reads of a list that keeps changing."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0)
"""The pauses between attempts to reconnect to a server over HTTP."""
MIN_CALL_SECONDS = 1.0
MAX_PINGS = 5
"""After so many unanswered pings, a server at an address gets a new connection."""
PING_PAUSE_SECONDS = 0.2
"""The pause between two pings of a server that does not answer them."""
GRACE_SECONDS = 2.0
"""How long to wait for a server to exit after its stdin is closed, and again after SIGTERM."""


class ServerState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Backoff:
    """The wait before the next restart. It doubles with each restart, up to `MAX_BACKOFF_SECONDS`,
    and is reset once a server has run for more than `HEALTHY_SECONDS`."""

    def __init__(self) -> None:
        self._seconds = FIRST_BACKOFF_SECONDS

    def after(self, lived_seconds: float) -> float:
        if lived_seconds > HEALTHY_SECONDS:
            self._seconds = FIRST_BACKOFF_SECONDS
        seconds = self._seconds
        self._seconds = min(MAX_BACKOFF_SECONDS, seconds * 2)
        return seconds


class ListenStream:
    """The `subscriptions/listen` request to a modern server. A handshake-era server sends
    notifications without such a request."""

    def __init__(self, connection: Connection, on_gap: Callable[[], None]) -> None:
        self._connection = connection
        self._on_gap = on_gap
        self.tasks = BackgroundTasks("listening to an upstream")

    def open(self, uris: Iterable[str]) -> None:
        """Listen for changed lists and for updates to these resources, in place of the previous
        stream."""
        about = self._connection.about
        params = listen_params(about.capabilities, uris) if about.modern else None
        self.tasks.cancel()
        if params is not None:
            self.tasks.start(self._listen(params))

    async def _listen(self, params: RawObject) -> None:
        # Over HTTP, a stream often ends. `_on_gap()` is then called, because notifications may be
        # missed until the stream is open again.
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


class Upstream:
    """Keeps one server running and sends requests to it.

    A server that goes down is restarted after a wait (see `Backoff`). A call to a server that is
    down cuts the wait short. `on_change` is called whenever the tools may have changed. Most other
    notifications go to `audience`.
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
        self.state = ServerState.STARTING
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
        backoff = Backoff()
        try:
            while True:
                began = time.monotonic()
                await self._live()
                await self._announce()
                seconds = backoff.after(time.monotonic() - began)
                if not await _rest_until(self._wake, seconds):
                    LOG.debug("restarting %s after %.1f s", self.name, seconds)
                self._wake.clear()
        finally:
            self.state = ServerState.STOPPED
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed. If it failed because the user was not
        logged in, first start it again, because the user may have logged in since."""
        if self.state is ServerState.FAILED and isinstance(self.failure, UpstreamLocked):
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()

    async def call(
        self, method: str, params: RawObject, client: Client = NOBODY, *, idempotent: bool = False
    ) -> Reply:
        """Send a client's request and wait for the reply. Progress restarts the call timeout. If
        the connection fails, a request that the server certainly did not run is repeated once, and
        so is an `idempotent` one. Raises UpstreamError if the server is down, disconnected, was too
        slow, is busy, or did not speak MCP."""
        limit = self.server.max_in_flight
        if self.busy >= limit:
            raise UpstreamUnavailable(
                f"upstream {self.name!r} has {limit} calls in flight",
                server=self.name,
                hint=f"call again later, or raise max_in_flight of [server.{self.name}]",
            )
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        self.busy += 1
        try:
            # A client's own patience includes its wait for the server to start.
            left_seconds = max(MIN_CALL_SECONDS, seconds - client.waited_seconds)
            async with asyncio.timeout(left_seconds) as timeout:
                restartable = CallTimeout(timeout, seconds)
                connection = await self._ready()
                try:
                    return await connection.ask(method, params, client, restartable)
                except UpstreamUnavailable as error:
                    if not (idempotent or error.did_not_run):
                        raise
                connection = await self._reconnected(connection)
                return await connection.ask(method, params, client, restartable)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None
        finally:
            self.busy -= 1

    async def every(self, method: str, member: str, client: Client) -> tuple[RawObject, ...]:
        seconds = self.server.call_timeout_seconds or self.options.call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                connection = await self._ready()
                try:
                    return await connection.every(method, member, client)
                except UpstreamUnavailable:
                    connection = await self._reconnected(connection)
                    return await connection.every(method, member, client)
        except TimeoutError:
            raise too_slow(self.server, method, seconds) from None

    async def subscribe(self, uri: str, client: Client) -> Reply:
        """The subscription is restored when the server restarts."""
        self.subscribed_uris = self.subscribed_uris | {uri}
        return await self._update_subscription("resources/subscribe", uri, client)

    async def unsubscribe(self, uri: str, client: Client) -> Reply:
        self.subscribed_uris = self.subscribed_uris - {uri}
        return await self._update_subscription("resources/unsubscribe", uri, client)

    def notify(self, method: str, params: bytes) -> None:
        """Pass on a client's notification, without waiting, to a handshake-era server that is
        up."""
        if (
            self._connection is not None
            and self.state is ServerState.READY
            and not self.about.modern
        ):
            self._connection.notify(method, params)

    async def _update_subscription(self, method: str, uri: str, client: Client) -> Reply:
        if self._stream is not None and self.about.modern:
            self._stream.open(self.subscribed_uris)
            return Reply(result=b"{}")
        return await self.call(method, _object(uri=uri), client)

    async def _reconnected(self, connection: Connection) -> Connection:
        """Return a usable connection after an exchange broke off. If the server still answers, this
        is the same connection. A server with an address is not started by us, so we try to connect
        several times before we consider it down.
        """
        pings = 0
        while self._connection is connection:
            if await connection.is_alive():
                return connection
            pings += 1
            if self.server.url and pings == MAX_PINGS:
                await connection.disconnect()
            # A ping also fails if the server is busy, or is exiting but still connected. Ping until
            # the server answers or the connection ends.
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
        """If the server is down, start it without the usual wait."""
        if self.state is ServerState.FAILED:
            self._settled.clear()
            self._wake.set()
        await self._settled.wait()
        if self.state is ServerState.READY and self._connection is not None:
            return self._connection
        raise self.failure or UpstreamUnavailable(
            f"upstream {self.name!r} is not running",
            server=self.name,
            hint="`upwell doctor` shows why",
        )

    async def _live(self) -> None:
        """Run the server once. Sets `state` and `failure`; raises only if it is cancelled."""
        self.state = ServerState.STARTING
        self._settled.clear()
        self._ended.clear()
        try:
            self._connection = connection = await self._connecting(self.server, self.options, self)
            self.tools = await connection.handshake(self.options.connect_timeout_seconds)
            self.about = connection.about
            self.state, self.failure = ServerState.READY, None
            self._settled.set()
            await self._announce()
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
            # Set before any await, so that a call waiting for the end of the connection does not
            # wait for the whole shutdown.
            self._ended.set()
            # The tasks are awaited only after the server has exited: each sends it a cancellation,
            # and would wait for a server that has stopped reading.
            self._tasks.cancel()
            if stream is not None:
                stream.tasks.cancel()
            if ended is not None:
                await ended.aclose(self.grace_seconds)
            if stream is not None:
                await stream.tasks.aclose()
            await self._tasks.drain()

    async def _announce(self) -> None:
        # Contained, because a fault in the lists of all servers must not end this one.
        with contained(f"announcing the tools of upstream {self.name}"):
            await self._on_change(self)

    async def _restore(self, connection: Connection) -> None:
        self._stream = ListenStream(connection, self._tools_changed)
        self._stream.open(self.subscribed_uris)
        level = self._audience.log_level()
        uris = sorted(self.subscribed_uris)
        requests = [("resources/subscribe", _object(uri=uri)) for uri in uris]
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
        self.state, self.failure = ServerState.FAILED, error
        self._settled.set()

    async def notified(self, message: Message, clients: list[Client]) -> None:
        if message.method != "notifications/tools/list_changed":
            await self._audience.relay(_without_stream(message), clients)
            return
        self._tools_changed()

    def _tools_changed(self) -> None:
        self._list_changed = True
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._tasks.start(self._refresh())

    async def _refresh(self) -> None:
        while self._list_changed and self._connection is not None:
            self._list_changed = False
            try:
                async with asyncio.timeout(self.options.connect_timeout_seconds):
                    self.tools = await self._connection.tools()
            except (TimeoutError, UpstreamError) as error:
                LOG.warning("upstream %s: its changed tools cannot be read: %s", self.name, error)
                return
            await self._announce()
            await asyncio.sleep(REFRESH_SECONDS)


async def _rest_until(event: asyncio.Event, seconds: float) -> bool:
    """Returns whether `event` was set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _object(**members: str) -> RawObject:
    return RawObject.parse(dumps(members))


def _without_stream(message: Message) -> Message:
    try:
        params = RawObject.parse(message.params)
    except NotJson:
        return message
    if "_meta" not in params:
        return message
    body = message.body.replaced("params", unstamped(params).encode())
    return Message(body=body, method=message.method)


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


MAX_SHOWN_FAULTS = 10
LISTS_SECONDS = 5.0
"""How long a probe waits for the lists other than tools."""


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
            await _read_lists(connection, LISTS_SECONDS)
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
    try:
        async with asyncio.timeout(seconds):
            for kind, method, member in LISTS:
                if connection.about.offers(kind):
                    await connection.every(method, member)
    except (TimeoutError, UpstreamError) as error:
        connection.left_out["its prompts and resources"] = str(error) or "it does not list them"
