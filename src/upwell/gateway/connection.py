"""One life of an upstream server: a child that was started, the greeting, and its answers.

Everything foreign that can go wrong here, a child's death or an answer that is none, becomes an
`UpstreamError` that names the server and says how it ended.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from upwell.gateway.client import NOBODY, Client
from upwell.gateway.eras import (
    HEADER_MISMATCH,
    MODERN_VERSIONS,
    Introduction,
    answered,
    bare,
    enveloped,
    initialize_params,
    input_requests,
    introduction,
    wants_input,
)
from upwell.gateway.inbound import Inbound, Surroundings
from upwell.gateway.inflight import Call, InFlight, Patience
from upwell.gateway.listing import MOST_LISTED, MOST_TOOLS, read_page, without_huge
from upwell.gateway.notices import Notices
from upwell.gateway.options import Auth, GatewayOptions, ServerOptions, Transport
from upwell.ground.errors import (
    UpstreamLocked,
    UpstreamProtocolError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.child import CannotStart, Command, start
from upwell.wire.lines import Line, Link, read_lines
from upwell.wire.logins import Logins
from upwell.wire.peer import (
    LARGE_BYTES,
    METHOD_NOT_FOUND,
    Peer,
    PeerBabbled,
    PeerGone,
    PeerLost,
    error_code,
)
from upwell.wire.rawjson import NotJson, RawObject, check, kind_of

if TYPE_CHECKING:
    from upwell.wire.oauth import LoginAuth

_MAX_PAGES = 1000
DISCOVER_SECONDS = 2.0
PING_SECONDS = 2.0
MOST_ROUNDS = 10
"""How often a call may come back for more input. The same bound as the official SDK's."""

Listed = Callable[[Sequence[RawObject]], tuple[RawObject, ...]]


class Connection:
    """A running server. Made by `connect`, ended by `aclose`; `ended` waits for its end. `listed`
    hears of the tools of a modern one, and gives those that may be used."""

    def __init__(
        self,
        server: ServerOptions,
        link: Link,
        lines: AsyncIterator[Line],
        around: Surroundings,
        listed: Listed = tuple,
    ) -> None:
        self.about = Introduction()
        self._server = server
        self._link = link
        self._listed = listed
        self._around = around
        self._in_flight = InFlight()
        self._inbound = Inbound(
            server.name, self._in_flight, around, lambda *answer: self._peer.answer(*answer)
        )
        self._peer = Peer(lines, link.sink, self._inbound.take)
        self._notices = Notices(server.name, self._peer.notify)
        self._reading = asyncio.create_task(self._peer.run(), name=f"read {server.name}")

    async def greet(self, timeout_seconds: float) -> tuple[RawObject, ...]:
        """Shake hands in whichever era the server knows. Gives its tools.

        Raises:
            UpstreamError: it ended, was too slow, or did not speak MCP.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._negotiate()
                return await self.tools()
        except NotJson as error:
            raise self._babble(f"its greeting cannot be read: {error}") from error
        except TimeoutError:
            raise UpstreamTimeout(
                f"upstream {self._server.name!r} did not start within {timeout_seconds:g} s",
                server=self._server.name,
                hint="try again, or raise gateway.connect_timeout_seconds",
            ) from None

    async def tools(self) -> tuple[RawObject, ...]:
        """The tools as they are now; over HTTP those that may be used there.

        Raises:
            UpstreamError: as `every`.
        """
        found = await self.every("tools/list", "tools", most=MOST_TOOLS)
        tools = without_huge(found)
        if len(tools) < len(found):
            LOG.warning("upstream %s: tools of more than 256 KiB are left out", self._server.name)
        speaks_modern = self.about.version_for(modern=True) in MODERN_VERSIONS
        usable = self._listed(tools) if speaks_modern else tools
        return usable if self.about.modern else tools

    async def every(
        self, method: str, member: str, client: Client = NOBODY, most: int = MOST_LISTED
    ) -> tuple[RawObject, ...]:
        """Every page of a list, as far as `most` of its entries; nothing where the server does not
        know the method.

        Raises:
            UpstreamError: as `ask`, or the list cannot be read.
        """
        found: list[RawObject] = []
        params = RawObject()
        for _ in range(_MAX_PAGES):
            reply = await self.ask(method, params, client)
            if reply.error:
                if error_code(reply.error) == METHOD_NOT_FOUND:
                    return ()
                raise self._babble(f"{method} failed: {reply.error.decode()[:200]}")
            try:
                items, cursor = await read_page(reply.result, member, most + 1 - len(found))
                found.extend(items)
            except NotJson as error:
                raise self._babble(f"its list of {member} cannot be read: {error}") from error
            if len(found) > most:
                LOG.warning(
                    "upstream %s: only its first %d %s are listed", self._server.name, most, member
                )
                break
            if cursor in (b"", b"null", b'""'):
                break
            params = RawObject().replaced("cursor", cursor)
        return tuple(found[:most])

    async def ask(
        self,
        method: str,
        params: RawObject,
        client: Client = NOBODY,
        patience: Patience | None = None,
    ) -> Reply:
        """Ask for a client and wait; a cancelled wait is told to the server.

        Raises:
            UpstreamError: it died, or answered with something that is no answer.
        """
        with self._in_flight.begun(params, client, patience) as call:
            for _ in range(MOST_ROUNDS):
                reply = await self._asked(method, call)
                if method == "tools/call" and error_code(reply.error) == HEADER_MISMATCH:
                    await self.tools()
                    reply = await self._asked(method, call)
                if client.modern or not self.about.modern or not wants_input(reply.result):
                    return reply
                call.params = await self._with_input(call.params, reply.result, client)
        raise self._babble(f"it asked for input {MOST_ROUNDS} times over")

    def tell(self, method: str, params: bytes = b"") -> None:
        """Notify the server, before whatever it is asked from now on; nobody waits for it."""
        self._notices.tell(method, params)

    async def _asked(self, method: str, call: Call) -> Reply:
        await self._notices.sent()
        try:
            call.sent = True
            params = self._addressed(call.params, call.client)
            late = partial(self._in_flight.answered, call)
            reply = await self._peer.request(method, params, late)
        except PeerLost as error:
            raise UpstreamUnavailable(
                f"upstream {self._server.name!r} did not answer: {error}",
                server=self._server.name,
                hint="check first whether the call had its effects",
            ) from error
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

    async def _with_input(self, params: RawObject, result: bytes, client: Client) -> RawObject:
        """The call again, with what a handshake-era client answered to what was asked."""
        opened = RawObject.parse(result)
        asked = input_requests(opened)
        with self._in_flight.asking(client):
            replies = await asyncio.gather(*(client.ask(*request) for request in asked.values()))
        answers: dict[str, bytes] = {}
        for key, reply in zip(asked, replies, strict=True):
            if reply.error:
                raise self._babble(f"the client did not answer: {reply.error.decode()[:200]}")
            answers[key] = reply.result
        return answered(params, opened, answers)

    async def is_there(self) -> bool:
        """Does the server say anything at all? Asked after an exchange with it broke off."""
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self._peer.request("ping", b"{}")
        except (TimeoutError, PeerGone, PeerBabbled) as error:
            LOG.debug("upstream %s is not there: %s", self._server.name, error)
            return False
        return True

    async def ended(self) -> None:
        """Wait until the server closes its side."""
        await asyncio.shield(self._reading)

    async def obituary(self, how: str) -> UpstreamUnavailable:
        """The error that says how the server ended, and what it said last."""
        if self._link.locked_out:
            return locked_out(self._server, await self._link.obituary())
        hint = (
            "it is being restarted; check first whether the call had its effects"
            if self.about.version
            else f"try the command or url of [server.{self._server.name}] by hand"
        )
        return UpstreamUnavailable(
            f"upstream {self._server.name!r} {how}: {await self._link.obituary()}",
            server=self._server.name,
            hint=hint,
        )

    async def aclose(self, grace_seconds: float = 2.0) -> None:
        """End the server and everything it started; each step of that has so long."""
        self._inbound.close()
        self._notices.close()
        await self._link.stop(grace_seconds)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _negotiate(self) -> None:
        declared = self._around.declared()
        reply = await self.ask("initialize", RawObject.parse(initialize_params(declared)))
        if not reply.error:
            self.about = introduction(RawObject.parse(reply.result))
            await self._peer.notify("notifications/initialized")
            if self._server.url and self._server.transport is not Transport.SSE:
                self.about = replace(self.about, also=await _also_speaks(self._peer))
            return
        self.about = Introduction(MODERN_VERSIONS[-1])
        discovered = await self.ask("server/discover", RawObject())
        if discovered.error:
            raise self._babble(f"it refused the handshake: {reply.error.decode()[:200]}")
        self.about = introduction(RawObject.parse(discovered.result), MODERN_VERSIONS[-1])

    def _addressed(self, params: RawObject, client: Client) -> bytes:
        version = self.about.version_for(modern=client.modern and client is not NOBODY)
        if version in MODERN_VERSIONS:
            return enveloped(params, version, client.capabilities, client.log_level).encode()
        return bare(params).encode()

    def _babble(self, what: str) -> UpstreamProtocolError:
        return UpstreamProtocolError(
            f"upstream {self._server.name!r} does not speak MCP here: {what}",
            server=self._server.name,
            hint="the call may have had its effects; report it to the server's authors",
        )


async def connect(
    server: ServerOptions,
    options: GatewayOptions,
    around: Surroundings,
    *,
    environment: Mapping[str, str],
    logins: Logins | None = None,
) -> Connection:
    """Start the server's program, or make ready to reach its address. `logins` let us in where the
    server wants one.

    Raises:
        UpstreamUnavailable: it is not there, or may not be run.
    """
    try:
        if server.url:
            from upwell.wire.http import Address, open_link

            sse = server.transport is Transport.SSE
            address = Address(url=server.url, headers=server.headers, sse=sse)
            auth = _auth(server, logins)
            link = open_link(address, options.max_line_bytes, auth)
            return Connection(server, link, link.lines(), around, link.mirrors.listed)
        command = Command(program=server.command, args=server.args, env=server.env, cwd=server.cwd)
        child = await start(command, environment)
    except (CannotStart, ValueError) as error:
        raise UpstreamUnavailable(
            f"upstream {server.name!r} cannot be started: {error}",
            server=server.name,
            hint=f"check the command or url of [server.{server.name}]",
        ) from error
    return Connection(server, child, read_lines(child, options.max_line_bytes), around)


Connecting = Callable[[ServerOptions, GatewayOptions, Surroundings], Awaitable[Connection]]
"""`connect`, with what is the same for every server and does not change."""


def _auth(server: ServerOptions, logins: Logins | None) -> "LoginAuth | None":
    if server.auth is not Auth.OAUTH or logins is None:
        return None
    from upwell.wire.oauth import LoginAuth

    return LoginAuth(logins, server.name, server.url)


async def _also_speaks(peer: Peer) -> str:
    """The modern version that a server over HTTP speaks beside the older one, else "". There each
    request stands for itself, so that every client can be served in its own era."""
    asked = enveloped(RawObject(), MODERN_VERSIONS[-1])
    try:
        async with asyncio.timeout(DISCOVER_SECONDS):
            reply = await peer.request("server/discover", asked.encode())
        known = RawObject.parse(reply.result).value("supportedVersions")
    except (TimeoutError, NotJson, PeerBabbled, PeerGone) as error:
        LOG.debug("a server knows one era: %s", error)
        return ""
    both = isinstance(known, list) and MODERN_VERSIONS[-1] in known
    return MODERN_VERSIONS[-1] if both else ""


def locked_out(server: ServerOptions, why: str) -> UpstreamLocked:
    """The error that says how to get in."""
    login = f"upwell login {server.name}"
    if server.auth is not Auth.OAUTH:
        login = f"`{login}`, or set the headers of [server.{server.name}]"
    return UpstreamLocked(
        f"upstream {server.name!r} needs a login: {why}", server=server.name, hint=login
    )


def too_slow(server: ServerOptions, what: str, seconds: float) -> UpstreamTimeout:
    return UpstreamTimeout(
        f"upstream {server.name!r} did not finish {what} within {seconds:g} s",
        server=server.name,
        hint=f"try again, or raise call_timeout_seconds of [server.{server.name}]",
    )
