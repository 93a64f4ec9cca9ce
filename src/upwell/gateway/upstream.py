"""One upstream server: a child that is started, greeted, listed, called, and restarted for ever."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum

from upwell.gateway.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    bare,
    enveloped,
    initialize_params,
)
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.ground.errors import (
    UpstreamError,
    UpstreamProtocolError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.child import CannotStart, Child, Command, start
from upwell.wire.lines import read_lines
from upwell.wire.peer import METHOD_NOT_FOUND, Message, Peer, PeerBabbled, PeerGone, error_body
from upwell.wire.rawjson import NotJson, RawArray, RawObject, kind_of

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 30.0
HEALTHY_SECONDS = 30.0
_MAX_PAGES = 1000


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Upstream:
    """Keeps one server running and speaks to it.

    `run` supervises until cancelled: start, greet, list, serve, and after an end again, waiting
    0.2 s to 30 s longer each time; 30 s of health set the wait back. A call that finds the server
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
        self._peer: Peer | None = None
        self._child: Child | None = None
        self._version = ""
        self._settled = asyncio.Event()
        self._wake = asyncio.Event()

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
            self.failure = UpstreamUnavailable(f"upstream {self.name!r} stopped", server=self.name)
            self._settled.set()

    async def settled(self) -> None:
        """Wait until the server is ready or has failed."""
        await self._settled.wait()

    async def call(self, method: str, params: RawObject, capabilities: bytes = b"{}") -> Reply:
        """Ask the server and wait for its answer, at most the call timeout.

        Raises:
            UpstreamError: it is not there, died, was too slow, or did not speak MCP. The message
                names it and says how it ended.
        """
        seconds = self.server.call_timeout_seconds or self._options.call_timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                peer = await self._ready_peer()
                reply = await peer.request(method, self._addressed(params, capabilities).encode())
        except TimeoutError:
            raise self._too_slow(method, seconds) from None
        except PeerGone as error:
            raise await self._dead("died during the call") from error
        except PeerBabbled as error:
            raise self._babble(str(error)) from error
        return self._checked(reply)

    def _too_slow(self, method: str, seconds: float) -> UpstreamTimeout:
        return UpstreamTimeout(
            f"upstream {self.name!r} did not answer {method} within {seconds:g} s",
            server=self.name,
            hint=f"try again, or raise call_timeout_seconds of [server.{self.name}]",
        )

    def _babble(self, what: str) -> UpstreamProtocolError:
        return UpstreamProtocolError(
            f"upstream {self.name!r} does not speak MCP here: {what}",
            server=self.name,
            hint="the call may have had its effects; report it to the server's authors",
        )

    async def _dead(self, how: str) -> UpstreamUnavailable:
        obituary = await self._child.obituary() if self._child else "it never started"
        return UpstreamUnavailable(
            f"upstream {self.name!r} {how}: {obituary}",
            server=self.name,
            hint="it is being restarted; check first whether the call had its effects",
        )

    def _checked(self, reply: Reply) -> Reply:
        wanted = reply.error or reply.result
        if kind_of(wanted) != "object":
            what = "error" if reply.error else "result"
            raise self._babble(f"the {what} is {wanted[:40]!r}, not an object")
        return reply

    def _addressed(self, params: RawObject, capabilities: bytes) -> RawObject:
        if self._version in MODERN_VERSIONS:
            return enveloped(params, self._version, capabilities)
        return bare(params)

    async def _ready_peer(self) -> Peer:
        if self.state is not State.READY:
            if self.state is State.FAILED:
                self._settled.clear()
                self._wake.set()
            await self._settled.wait()
        if self.state is State.READY and self._peer is not None:
            return self._peer
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
        reading: asyncio.Task[None] | None = None
        try:
            self._child = await start(
                Command(
                    program=self.server.command,
                    args=self.server.args,
                    env=self.server.env,
                    cwd=self.server.cwd,
                ),
                self._environment,
            )
            lines = read_lines(self._child.out, self._options.max_line_bytes)
            self._peer = Peer(lines, self._child.sink, self._incoming)
            reading = asyncio.create_task(self._peer.run(), name=f"read {self.name}")
            await self._greet(self._peer)
            self.state, self.failure = State.READY, None
            self._settled.set()
            await self._on_change(self)
            await asyncio.shield(reading)
            self._fail(await self._dead("ended"))
        except CannotStart as error:
            self._fail(
                UpstreamUnavailable(
                    f"upstream {self.name!r} cannot be started: {error}",
                    server=self.name,
                    hint=f"check the command of [server.{self.name}]",
                )
            )
        except UpstreamError as error:
            self._fail(error)
        finally:
            await self._bury(reading)

    def _fail(self, error: UpstreamError) -> None:
        LOG.warning("%s", error)
        self.state, self.failure = State.FAILED, error
        self._settled.set()

    async def _bury(self, reading: asyncio.Task[None] | None) -> None:
        if self._child is not None:
            await self._child.stop()
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        self._peer = self._child = None

    async def _greet(self, peer: Peer) -> None:
        """Shake hands in whichever era the server knows, and read its list of tools."""
        try:
            async with asyncio.timeout(self._options.connect_timeout_seconds):
                await self._negotiate(peer)
                self.tools = await self._list_tools(peer)
        except TimeoutError:
            raise self._too_slow("its start-up", self._options.connect_timeout_seconds) from None
        except PeerGone as error:
            raise await self._dead("ended while starting") from error
        except (PeerBabbled, NotJson) as error:
            raise self._babble(str(error)) from error

    async def _negotiate(self, peer: Peer) -> None:
        reply = await peer.request("initialize", initialize_params())
        if not reply.error:
            version = RawObject.parse(self._checked(reply).result).value("protocolVersion")
            self._version = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            await peer.notify("notifications/initialized")
            return
        self._version = MODERN_VERSIONS[-1]
        discovered = await peer.request(
            "server/discover", self._addressed(RawObject(), b"{}").encode()
        )
        if discovered.error:
            raise self._babble(f"it refused the handshake: {reply.error.decode()[:200]}")

    async def _list_tools(self, peer: Peer) -> tuple[RawObject, ...]:
        found: list[RawObject] = []
        params = RawObject()
        for _ in range(_MAX_PAGES):
            reply = await peer.request("tools/list", self._addressed(params, b"{}").encode())
            if reply.error:
                if RawObject.parse(reply.error).value("code") == METHOD_NOT_FOUND:
                    return ()
                raise self._babble(f"tools/list failed: {reply.error.decode()[:200]}")
            page = RawObject.parse(self._checked(reply).result)
            items = RawArray.parse(page.get("tools") or b"[]").items
            found.extend(RawObject.parse(item) for item in items)
            cursor = page.get("nextCursor")
            if cursor in (None, b"null", b'""'):
                break
            params = RawObject().replaced("cursor", cursor or b"")
        return tuple(found)

    async def _incoming(self, message: Message) -> None:
        """What the server says unasked: a changed list is read again, requests are declined."""
        if message.id is not None and self._peer is not None:
            code = METHOD_NOT_FOUND if message.method != "ping" else 0
            reply = (
                Reply(error=error_body(code, f"upwell does not offer {message.method}"))
                if code
                else Reply(result=b"{}")
            )
            await self._peer.answer(message.id, reply)
        elif message.method == "notifications/tools/list_changed":
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        if self._peer is None:
            return
        try:
            async with asyncio.timeout(self._options.connect_timeout_seconds):
                self.tools = await self._list_tools(self._peer)
        except (TimeoutError, PeerGone, PeerBabbled, NotJson, UpstreamError) as error:
            LOG.warning("upstream %s: its changed tools could not be read: %s", self.name, error)
            return
        await self._on_change(self)


def describe(upstream: Upstream) -> str:
    """One word on the state, and the reason when it failed."""
    if upstream.failure is not None and upstream.state is not State.READY:
        return f"{upstream.state}: {upstream.failure}"
    return str(upstream.state)
