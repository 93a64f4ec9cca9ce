"""One connection to an upstream server. Every external failure, such as a server crash or a
malformed reply, becomes an `UpstreamError` here.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from upwell.gateway.clients import NOBODY, Client
from upwell.gateway.eras import (
    HEADER_MISMATCH,
    MODERN_VERSIONS,
    Introduction,
    bare,
    enveloped,
    initialize_params,
    input_requests,
    introduction,
    wants_input,
    with_answers,
)
from upwell.gateway.options import Auth, GatewayOptions, ServerOptions, Transport
from upwell.gateway.upstreams.inbound import Call, CallTimeout, Inbound, InFlight, Surroundings
from upwell.gateway.upstreams.tool_lists import MAX_ENTRIES, MAX_TOOLS, ListPage, read_page
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import (
    UpstreamLocked,
    UpstreamProtocolError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from upwell.ground.secrets.redact import redacted_start
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.child import CannotStart, ChildCommand, start
from upwell.wire.lines import MAX_LINE_BYTES, Line, ServerLink, read_lines
from upwell.wire.logins import Logins
from upwell.wire.peer import (
    LARGE_BYTES,
    METHOD_NOT_FOUND,
    Peer,
    PeerGone,
    PeerLost,
    PeerRefused,
    ProtocolError,
    ServerPace,
    error_code,
)
from upwell.wire.rawjson import NotJson, RawObject, check, kind_of

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SEND_SECONDS = 5.0
"""How long to wait until a server reads a notification, counted from when it was queued."""
MAX_QUEUED = 100
MAX_QUEUED_BYTES = 1024 * 1024
"""A notification that would exceed either limit is dropped."""


class Notifications:
    """A queue of notifications for the server `name`. `send` sends them, oldest first."""

    def __init__(self, name: str, send: Callable[[str, bytes], Awaitable[None]]) -> None:
        self._name = name
        self._send = send
        self.tasks = BackgroundTasks(f"notifications to upstream {name}")
        self._last: asyncio.Task[None] | None = None
        self._queued_bytes = 0

    def put(self, method: str, params: bytes = b"") -> None:
        if len(self.tasks) >= MAX_QUEUED or self._queued_bytes + len(params) > MAX_QUEUED_BYTES:
            LOG.warning("upstream %s reads no notifications; %s is dropped", self._name, method)
            return
        self._queued_bytes += len(params)
        deadline = asyncio.get_running_loop().time() + SEND_SECONDS
        self._last = self.tasks.start(self._send_after(self._last, deadline, method, params))

    async def sent(self) -> None:
        """Wait until the notifications queued so far have been sent or dropped."""
        if self._last is not None and not self._last.done():
            await asyncio.wait({self._last})

    async def _send_after(
        self, previous: "asyncio.Task[None] | None", deadline: float, method: str, params: bytes
    ) -> None:
        try:
            if previous is not None:
                await asyncio.wait({previous})
            async with asyncio.timeout_at(deadline):
                await self._send(method, params)
        except TimeoutError:
            LOG.warning("upstream %s did not read %s in time", self._name, method)
        except PeerGone as error:
            LOG.debug("upstream %s has closed its connection: %s", self._name, error)
        finally:
            self._queued_bytes -= len(params)


_MAX_PAGES = 1000
_EMPTY_CURSOR = b'""'
LISTS = (
    ("prompts", "prompts/list", "prompts"),
    ("resources", "resources/list", "resources"),
    ("resources", "resources/templates/list", "resourceTemplates"),
)
"""The capability, the method, and the member of the result of each list other than tools."""
MAX_NOTED_FAULTS = 100
DISCOVER_SECONDS = 2.0
PING_SECONDS = 2.0
MAX_ROUNDS = 10
"""A call fails if its server asks for input this many times. The official Python SDK has the same
limit."""

Listed = Callable[[Sequence[RawObject]], tuple[RawObject, ...]]


class Connection:
    """A connection to a running server. `listed` receives the tools of a server that supports the
    modern era, and returns those that may be called in it.
    """

    def __init__(
        self,
        server: ServerOptions,
        link: ServerLink,
        lines: AsyncIterator[Line],
        surroundings: Surroundings,
        listed: Listed = tuple,
    ) -> None:
        self.about = Introduction()
        self.left_out: dict[str, str] = {}
        """The definitions that are left out, and why."""
        self._server = server
        self._link = link
        self._listed = listed
        self._around = surroundings
        self._in_flight = InFlight()
        self._inbound = Inbound(
            server.name, self._in_flight, surroundings, lambda *answer: self._peer.answer(*answer)
        )
        self._peer = Peer(lines, link.sink, self._inbound.take, pace=ServerPace(server.name))
        self._notifications = Notifications(server.name, self._peer.notify)
        self._tasks = BackgroundTasks(f"upstream {server.name}")
        self._reading = self._tasks.start(self._peer.run(), name=f"read {server.name}")

    async def handshake(self, timeout_seconds: float) -> tuple[RawObject, ...]:
        """Perform the handshake of the server's era, and return the server's tools. Raises
        UpstreamError if the server disconnected, was too slow, or did not speak MCP."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._negotiate()
                return await self.tools()
        except NotJson as error:
            raise self._violation(f"its handshake cannot be read: {error}") from error
        except TimeoutError:
            raise UpstreamTimeout(
                f"upstream {self._server.name!r} did not start within {timeout_seconds:g} s",
                server=self._server.name,
                hint="try again, or raise gateway.connect_timeout_seconds",
            ) from None

    async def tools(self) -> tuple[RawObject, ...]:
        """If a modern server is connected over HTTP, tools with invalid header declarations are
        left out (`wire/mirrors.py`)."""
        tools = await self.every("tools/list", "tools", limit=MAX_TOOLS)
        speaks_modern = self.about.version_for(modern=True) in MODERN_VERSIONS
        usable = self._listed(tools) if speaks_modern else tools
        return usable if self.about.modern else tools

    async def every(
        self, method: str, member: str, client: Client = NOBODY, limit: int = MAX_ENTRIES
    ) -> tuple[RawObject, ...]:
        """Read all pages of a list, up to `limit` entries; none if the server does not support the
        method. Entries that clients would reject are repaired or left out (`gateway/shapes.py`).
        Raises UpstreamError as `ask()` does, or if the list cannot be read."""
        entries: dict[RawObject, None] = {}
        cursors = [b""]
        while True:
            page = await self._page(method, member, cursors[-1], client, limit + 1 - len(entries))
            entries.update(dict.fromkeys(page.entries))
            for label, fault in page.faults.items():
                # Each is logged once, although the list is read often.
                if label not in self.left_out and len(self.left_out) < MAX_NOTED_FAULTS:
                    self.left_out[label] = fault
                    LOG.warning("upstream %s: %s is left out: %s", self._server.name, label, fault)
            if len(entries) > limit or len(cursors) >= _MAX_PAGES:
                LOG.warning(
                    "upstream %s: only its first %d %s are listed",
                    self._server.name,
                    min(limit, len(entries)),
                    member,
                )
                break
            if page.cursor in cursors:
                # Some servers give the last page an empty cursor, and others repeat one forever.
                if page.cursor not in (b"", _EMPTY_CURSOR):
                    LOG.warning(
                        "upstream %s: its list of %s repeats a cursor, and is taken as complete",
                        self._server.name,
                        member,
                    )
                break
            cursors.append(page.cursor)
        return tuple(entries)[:limit]

    async def _page(
        self, method: str, member: str, cursor: bytes, client: Client, limit: int
    ) -> ListPage:
        params = RawObject().replaced("cursor", cursor) if cursor else RawObject()
        reply = await self.ask(method, params, client)
        if reply.error:
            if error_code(reply.error) == METHOD_NOT_FOUND or cursor == _EMPTY_CURSOR:
                return ListPage(())
            raise self._violation(f"{method} failed: {redacted_start(reply.error, 200)}")
        try:
            return await read_page(reply.result, member, limit)
        except NotJson as error:
            raise self._violation(f"its list of {member} cannot be read: {error}") from error

    async def ask(
        self,
        method: str,
        params: RawObject,
        client: Client = NOBODY,
        timeout: CallTimeout | None = None,
    ) -> Reply:
        """Send a client's request and wait for the reply. Cancelling the wait cancels the request.
        Raises UpstreamError if the server disconnected, its reply is malformed, or it did not get
        the input that it asked for."""
        with self._in_flight.track(params, client, timeout) as call:
            for _ in range(MAX_ROUNDS):
                reply = await self._exchange(method, call)
                code = error_code(reply.error) if reply.error else None
                if method == "tools/call" and code == HEADER_MISMATCH:
                    # The tool's declared headers have changed since it was listed.
                    await self.tools()
                    reply = await self._exchange(method, call)
                if client.modern or not self.about.modern or not wants_input(reply.result):
                    return reply
                call.params = await self._with_input(call.params, reply.result, client)
        raise self._violation(f"it asked for input {MAX_ROUNDS} times")

    def notify(self, method: str, params: bytes = b"") -> None:
        """Queue a notification without waiting. It is sent or dropped before any later `ask()`."""
        self._notifications.put(method, params)

    async def _exchange(self, method: str, call: Call) -> Reply:
        await self._notifications.sent()
        try:
            call.sent = True
            client = call.client
            version = self.about.version_for(modern=client.modern and client is not NOBODY)
            params = (
                enveloped(call.params, version, client.capabilities, client.log_level)
                if version in MODERN_VERSIONS
                else bare(call.params)
            )
            late = partial(self._in_flight.answered, call)
            reply = await self._peer.request(method, params.encode(), late)
        except PeerLost as error:
            raise UpstreamUnavailable(
                f"upstream {self._server.name!r} did not answer: {error}",
                server=self._server.name,
                hint="check whether the call took effect before you repeat it",
            ) from error
        except PeerGone as error:
            failure = await self.exit_reason("ended before it answered")
            failure.did_not_run = isinstance(error, PeerRefused)
            raise failure from error
        except ProtocolError as error:
            raise self._violation(str(error)) from error
        body = reply.error or reply.result
        if kind_of(body) != "object":
            part, start = "error" if reply.error else "result", body[:40].decode(errors="replace")
            raise self._violation(f"the {part} is {start}, not an object")
        # A worker checks large bodies when it shortens them. Checking them here would block the
        # event loop.
        if len(body) < LARGE_BYTES:
            try:
                check(body)
            except NotJson as error:
                raise self._violation(f"the answer is not JSON: {error}") from error
        return reply

    async def _with_input(self, params: RawObject, result: bytes, client: Client) -> RawObject:
        """Ask a handshake-era client for the input that a modern server requests, and return the
        params with which to repeat the call."""
        opened = RawObject.parse(result)
        questions = input_requests(opened)
        with self._in_flight.asking(client):
            replies = await asyncio.gather(*(client.ask(*item) for item in questions.values()))
        answers: dict[str, bytes] = {}
        for key, reply in zip(questions, replies, strict=True):
            if reply.error:
                raise self._violation(
                    f"the client did not answer: {redacted_start(reply.error, 200)}"
                )
            answers[key] = reply.result
        return with_answers(params, opened, answers)

    async def is_alive(self) -> bool:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._peer.request("ping", b"{}")
        except (TimeoutError, PeerGone, ProtocolError) as error:
            LOG.debug("upstream %s does not answer: %s", self._server.name, error)
            return False
        return True

    async def disconnect(self) -> None:
        await self._link.stop()

    async def ended(self) -> None:
        # Shielded, because a cancelled caller must not cancel the reading task.
        await asyncio.shield(self._reading)

    async def exit_reason(self, how: str) -> UpstreamUnavailable:
        """Return an error that says why the server exited, with the last lines of its stderr."""
        if self._link.locked_out:
            return locked_out(self._server, await self._link.exit_reason())
        hint = (
            "it is being restarted; check whether the call took effect before you repeat it"
            if self.about.version
            else f"try the command or url of [server.{self._server.name}] by hand"
        )
        return UpstreamUnavailable(
            f"upstream {self._server.name!r} {how}: {await self._link.exit_reason()}",
            server=self._server.name,
            hint=hint,
        )

    async def aclose(self, grace_seconds: float = 2.0) -> None:
        """Stop the server and the processes that it started. Each step may take `grace_seconds`."""
        # These tasks are cancelled first and awaited last, because a write to a server that reads
        # nothing blocks until the server exits.
        self._inbound.tasks.cancel()
        self._notifications.tasks.cancel()
        await self._link.stop(grace_seconds)
        await self._inbound.tasks.drain()
        await self._notifications.tasks.drain()
        await self._tasks.aclose()

    async def _negotiate(self) -> None:
        capabilities = self._around.client_capabilities()
        reply = await self.ask("initialize", RawObject.parse(initialize_params(capabilities)))
        if not reply.error:
            self.about = introduction(RawObject.parse(reply.result))
            try:
                await self._peer.notify("notifications/initialized")
            except PeerGone as error:
                raise await self.exit_reason("ended during the handshake") from error
            if self._server.url and self._server.transport is not Transport.SSE:
                self.about = replace(self.about, also=await _also_speaks(self._peer))
            return
        self.about = Introduction(MODERN_VERSIONS[-1])
        discovered = await self.ask("server/discover", RawObject())
        if discovered.error:
            raise self._violation(f"it refused the handshake: {redacted_start(reply.error, 200)}")
        self.about = introduction(RawObject.parse(discovered.result), MODERN_VERSIONS[-1])

    def _violation(self, detail: str) -> UpstreamProtocolError:
        return UpstreamProtocolError(
            f"the exchange with upstream {self._server.name!r} failed: {detail}",
            server=self._server.name,
            hint="the call may have taken effect; report this error to the server's authors",
        )


async def connect(
    server: ServerOptions,
    options: GatewayOptions,
    surroundings: Surroundings,
    *,
    environment: Mapping[str, str],
    logins: Logins | None = None,
    max_bytes: int = MAX_LINE_BYTES,
) -> Connection:
    """Start the server's program, or open a link to its address. A message of the server may have
    `max_bytes`. In `env` and `headers`, `${NAME}` is replaced with its value in `environment`.
    Raises UpstreamUnavailable if the program is missing or may not be run, the address is invalid,
    or a variable is not set."""
    try:
        env, headers = filled_in(server.env, environment), filled_in(server.headers, environment)
        if server.url:
            from upwell.wire.http import Address, open_link

            sse = server.transport is Transport.SSE
            address = Address(url=server.url, headers=headers, sse=sse)
            auth = None
            if server.auth is Auth.OAUTH and logins is not None:
                from upwell.wire.oauth import LoginAuth

                auth = LoginAuth(logins, server.name, server.url)
            link = open_link(address, max_bytes, auth)
            return Connection(server, link, link.lines(), surroundings, link.mirrors.listed)
        command = ChildCommand(program=server.command, args=server.args, env=env, cwd=server.cwd)
        child = await start(command, environment)
    except (CannotStart, ValueError) as error:
        raise UpstreamUnavailable(
            f"upstream {server.name!r} cannot be started: {error}",
            server=server.name,
            hint=f"check the command, url and variables of [server.{server.name}]",
        ) from error
    return Connection(server, child, read_lines(child, max_bytes), surroundings)


def filled_in(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Replace each `${NAME}` in `values` with the value of that variable. Raises ValueError if it
    is not set, or empty."""

    def value_of(match: re.Match[str]) -> str:
        if value := environment.get(match[1]):
            return value
        raise ValueError(f"the environment variable {match[1]} is not set")

    return {name: _VARIABLE.sub(value_of, value) for name, value in values.items()}


Connecting = Callable[[ServerOptions, GatewayOptions, Surroundings], Awaitable[Connection]]
"""`connect()` with the environment and the logins already bound."""


async def _also_speaks(peer: Peer) -> str:
    """The modern version that a handshake-era server over HTTP also supports, or "". HTTP requests
    are independent, so each client can be served in its own era."""
    params = enveloped(RawObject(), MODERN_VERSIONS[-1])
    try:
        async with asyncio.timeout(DISCOVER_SECONDS):
            reply = await peer.request("server/discover", params.encode())
        versions = RawObject.parse(reply.result).value("supportedVersions")
    except (TimeoutError, NotJson, ProtocolError, PeerGone) as error:
        LOG.debug("a server supports only the handshake era: %s", error)
        return ""
    supports_both = isinstance(versions, list) and MODERN_VERSIONS[-1] in versions
    return MODERN_VERSIONS[-1] if supports_both else ""


def locked_out(server: ServerOptions, why: str) -> UpstreamLocked:
    login = f"upwell login {server.name}"
    if server.auth is not Auth.OAUTH:
        login = f"`{login}`, or set the headers of [server.{server.name}]"
    return UpstreamLocked(
        f"upstream {server.name!r} needs a login: {why}", server=server.name, hint=login
    )


def too_slow(server: ServerOptions, method: str, seconds: float) -> UpstreamTimeout:
    return UpstreamTimeout(
        f"upstream {server.name!r} did not finish {method} within {seconds:g} s",
        server=server.name,
        hint=f"try again, or raise call_timeout_seconds of [server.{server.name}]",
    )
