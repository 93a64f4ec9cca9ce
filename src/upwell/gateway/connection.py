"""One life of an upstream server: a child that was started, the greeting, and its answers.

Everything foreign that can go wrong here, a child's death or an answer that is none, becomes an
`UpstreamError` that names the server and says how it ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

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
from upwell.ground.trace import LOG
from upwell.ground.types import Ping, Reply
from upwell.wire.child import CannotStart, Child, Command, start
from upwell.wire.lines import read_lines
from upwell.wire.peer import (
    LARGE_BYTES,
    METHOD_NOT_FOUND,
    Message,
    Peer,
    PeerBabbled,
    PeerGone,
    error_body,
)
from upwell.wire.rawjson import NotJson, RawArray, RawObject, check, kind_of

NO_CAPABILITIES = b"{}"
_MAX_PAGES = 1000
MOST_ANSWERS = 100
Heard = Callable[[Message], Awaitable[None]]


class Connection:
    """A running server. Made by `connect`, ended by `aclose`; `ended` waits for its end."""

    def __init__(
        self, server: ServerOptions, options: GatewayOptions, child: Child, on_notice: Heard
    ) -> None:
        self._server = server
        self._child = child
        self._on_notice = on_notice
        self._version = ""
        self._answers: set[asyncio.Task[None]] = set()
        self._peer = Peer(read_lines(child.out, options.max_line_bytes), child.sink, self._incoming)
        self._reading = asyncio.create_task(self._peer.run(), name=f"read {server.name}")

    async def greet(self, timeout_seconds: float) -> tuple[RawObject, ...]:
        """Shake hands in whichever era the server knows. Gives its tools.

        Raises:
            UpstreamError: it ended, was too slow, or did not speak MCP.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._negotiate()
                return await self.list_tools()
        except NotJson as error:
            raise self._babble(f"its greeting cannot be read: {error}") from error
        except TimeoutError:
            raise UpstreamTimeout(
                f"upstream {self._server.name!r} did not start within {timeout_seconds:g} s",
                server=self._server.name,
                hint="try again, or raise gateway.connect_timeout_seconds",
            ) from None

    async def list_tools(self) -> tuple[RawObject, ...]:
        """Every page of its tools.

        Raises:
            UpstreamError: as `ask`, or the list cannot be read.
        """
        found: list[RawObject] = []
        params = RawObject()
        for _ in range(_MAX_PAGES):
            reply = await self.ask("tools/list", params)
            if reply.error:
                if _code(reply.error) == METHOD_NOT_FOUND:
                    return ()
                raise self._babble(f"tools/list failed: {reply.error.decode()[:200]}")
            try:
                page = RawObject.parse(reply.result)
                items = RawArray.parse(page.get("tools") or b"[]").items
                found.extend(RawObject.parse(item) for item in items if kind_of(item) == "object")
            except NotJson as error:
                raise self._babble(f"its list of tools cannot be read: {error}") from error
            cursor = page.get("nextCursor")
            if cursor in (None, b"null", b'""'):
                break
            params = RawObject().replaced("cursor", cursor or b"")
        return tuple(found)

    async def ask(
        self, method: str, params: RawObject, capabilities: bytes = NO_CAPABILITIES
    ) -> Reply:
        """Ask and wait; a cancelled wait is told to the server.

        Raises:
            UpstreamError: it died, or answered with something that is no answer.
        """
        try:
            reply = await self._peer.request(method, self._addressed(params, capabilities))
        except PeerGone as error:
            raise await self.obituary("ended before it answered") from error
        except PeerBabbled as error:
            raise self._babble(str(error)) from error
        body = reply.error or reply.result
        if kind_of(body) != "object":
            what = "error" if reply.error else "result"
            raise self._babble(f"the {what} is {body[:40].decode(errors='replace')}, not an object")
        if len(body) < LARGE_BYTES:
            try:
                check(body)
            except NotJson as error:
                raise self._babble(f"the answer is not JSON: {error}") from error
        return reply

    async def ended(self) -> None:
        """Wait until the server closes its side."""
        await asyncio.shield(self._reading)

    async def obituary(self, how: str) -> UpstreamUnavailable:
        """The error that says how the server ended, and what it said last."""
        hint = (
            "it is being restarted; check first whether the call had its effects"
            if self._version
            else f"run the command of [server.{self._server.name}] by hand and see what it says"
        )
        return UpstreamUnavailable(
            f"upstream {self._server.name!r} {how}: {await self._child.obituary()}",
            server=self._server.name,
            hint=hint,
        )

    async def aclose(self) -> None:
        """End the server and everything it started."""
        for task in list(self._answers):
            task.cancel()
        await self._child.stop()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _negotiate(self) -> None:
        reply = await self.ask("initialize", RawObject.parse(initialize_params()))
        if not reply.error:
            version = RawObject.parse(reply.result).value("protocolVersion")
            self._version = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            await self._peer.notify("notifications/initialized")
            return
        self._version = MODERN_VERSIONS[-1]
        if (await self.ask("server/discover", RawObject())).error:
            raise self._babble(f"it refused the handshake: {reply.error.decode()[:200]}")

    def _addressed(self, params: RawObject, capabilities: bytes) -> bytes:
        if self._version in MODERN_VERSIONS:
            return enveloped(params, self._version, capabilities).encode()
        return bare(params).encode()

    async def _incoming(self, message: Message) -> None:
        """What the server says unasked: notices go on, requests are declined."""
        if message.id is None:
            await self._on_notice(message)
        elif len(self._answers) < MOST_ANSWERS:
            task = asyncio.create_task(self._answer(message.id, message.method or ""))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, identity: bytes, method: str) -> None:
        """Answer a request of the server; not from the loop that reads, or a server that does not
        read could hold it up."""
        reply = Reply(result=b"{}")
        if method != "ping":
            reply = Reply(error=error_body(METHOD_NOT_FOUND, f"upwell does not offer {method}"))
        try:
            await self._peer.answer(identity, reply)
        except PeerGone as error:
            LOG.debug("upstream %s asked and went: %s", self._server.name, error)

    def _babble(self, what: str) -> UpstreamProtocolError:
        return UpstreamProtocolError(
            f"upstream {self._server.name!r} does not speak MCP here: {what}",
            server=self._server.name,
            hint="the call may have had its effects; report it to the server's authors",
        )


async def connect(
    server: ServerOptions,
    options: GatewayOptions,
    environment: Mapping[str, str],
    on_notice: Heard,
) -> Connection:
    """Start the server's program.

    Raises:
        UpstreamUnavailable: it is not there, or may not be run.
    """
    command = Command(program=server.command, args=server.args, env=server.env, cwd=server.cwd)
    try:
        child = await start(command, environment)
    except CannotStart as error:
        raise UpstreamUnavailable(
            f"upstream {server.name!r} cannot be started: {error}",
            server=server.name,
            hint=f"check the command of [server.{server.name}]",
        ) from error
    return Connection(server, options, child, on_notice)


async def probe(
    server: ServerOptions, options: GatewayOptions, environment: Mapping[str, str]
) -> Ping:
    """Start a server, ask for its tools, end it: is it fit for service?"""

    async def ignore(message: Message) -> None:
        return None

    try:
        connection = await connect(server, options, environment, ignore)
        try:
            tools = await connection.greet(options.connect_timeout_seconds)
        finally:
            await connection.aclose()
    except UpstreamError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    return Ping(ok=True, detail=f"{len(tools)} tools")


def too_slow(server: ServerOptions, what: str, seconds: float) -> UpstreamTimeout:
    return UpstreamTimeout(
        f"upstream {server.name!r} did not finish {what} within {seconds:g} s",
        server=server.name,
        hint=f"try again, or raise call_timeout_seconds of [server.{server.name}]",
    )


def _code(error: bytes) -> object:
    return RawObject.parse(error).value("code")
