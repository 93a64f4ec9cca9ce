"""The server in front on streamable HTTP: any number of agents, in either era, at one address.

Handshake era: sessions by `Mcp-Session-Id`, each bound to who opened it. Modern era: every POST is
on its own, and its headers have to say what its body says. Who may come in at all is the business
of whoever mounts this route, and says in the scope who did; without that nobody is served. Nothing
of a request's headers ever reaches an upstream.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from upwell.gateway.audience import Audience
from upwell.gateway.client import Caller, Session, text_of
from upwell.gateway.desk import Desk
from upwell.gateway.directory import Directory
from upwell.gateway.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    PROTOCOL_VERSION,
    Envelope,
    meta_of,
)
from upwell.gateway.headers import (
    EVENTS,
    JSON,
    BadRequest,
    check_arguments,
    check_headers,
    headers_of,
    message_of,
    params_of,
    status_of,
)
from upwell.gateway.replay import Outbox, Streams
from upwell.gateway.streams import (
    Questions,
    Send,
    Stream,
    follow,
    respond,
    respond_json,
)
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.principal import IN_SCOPE, Principal
from upwell.ground.types import Reply
from upwell.wire.peer import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    answer_line,
    error_body,
    line_of,
)
from upwell.wire.rawjson import NotJson, RawObject

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PATH = "/mcp"
PRIMED_FROM = "2025-11-25"
"""From this version on a stream begins with an event that only has an id."""
MOST_SESSIONS = 1000
MOST_SESSIONS_EACH = 250
"""Of all sessions, those that somebody may have who was given a token."""
IDLE_SECONDS = 3600.0


@dataclass(slots=True, eq=False)
class HttpSession:
    """An agent of the handshake era."""

    session: Session
    questions: Questions
    streams: Streams
    seen_at: float
    running: dict[bytes, "asyncio.Task[bytes]"] = field(default_factory=dict)
    followed: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """The streams that a GET has open, by name."""


class HttpFront:
    """An ASGI application for `/mcp`."""

    def __init__(
        self, desk: Desk, directory: Directory, audience: Audience, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._desk = desk
        self._directory = directory
        self._audience = audience
        self._clock = clock
        self._sessions: dict[str, HttpSession] = {}
        self._modern: dict[Principal, Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[IN_SCOPE]
        try:
            headers = headers_of(scope["headers"])
            if scope["method"] == "POST":
                await self._post(headers, principal, await _body(receive), receive, send)
            elif scope["method"] == "GET":
                await self._get(headers, principal, receive, send)
            elif scope["method"] == "DELETE":
                self._end(self._held(headers, principal))
                await respond(send, 204)
            else:
                await respond(send, 405, b"", [(b"allow", b"GET, POST, DELETE")])
        except BadRequest as error:
            await respond_json(send, error.status, error.line)
        except NotJson as error:
            unreadable = BadRequest(400, PARSE_ERROR, f"the request cannot be read: {error}")
            await respond_json(send, unreadable.status, unreadable.line)

    def close(self) -> None:
        """End every session."""
        for held in list(self._sessions.values()):
            self._end(held)

    async def _post(
        self,
        headers: Mapping[str, str],
        principal: Principal,
        body: bytes,
        receive: Receive,
        send: Send,
    ) -> None:
        message = message_of(headers, body)
        version = headers.get("mcp-protocol-version", "")
        params = params_of(message)
        if version in MODERN_VERSIONS or PROTOCOL_VERSION in meta_of(params):
            await self._modern_post(headers, principal, message, params, receive, send)
        elif message.method == "initialize" and message.id is not None:
            held = self._begin(principal)
            name = (b"mcp-session-id", held.session.id.encode())
            work = self._answering(held, message, Stream(held.questions, held.streams.own))
            await respond(send, 200, await work, [(b"content-type", JSON.encode()), name])
        else:
            if version and version not in HANDSHAKE_VERSIONS:
                raise BadRequest(400, INVALID_REQUEST, f"unsupported protocol version {version!r}")
            accept = headers.get("accept", "")
            events = 0 <= accept.find(EVENTS) < accept.find(JSON)
            held, primed = self._held(headers, principal), version >= PRIMED_FROM
            await self._handshake_post(held, message, send, events=events, primed=primed)

    async def _handshake_post(
        self, held: HttpSession, message: Message, send: Send, *, events: bool, primed: bool
    ) -> None:
        """Events from the start where the client names them first; else only where needed. A
        connection that breaks ends nothing: the client may come back for the rest."""
        if message.method is None:
            held.questions.answered(message)
            await respond(send, 202)
        elif message.id is None:
            await self._noticed(held, message)
            await respond(send, 202)
        else:
            outbox = held.streams.begin()
            stream = Stream(held.questions, held.streams.own, outbox, primed=primed)
            try:
                await stream.run(send, self._answering(held, message, stream), events=events)
            finally:
                held.streams.ended(outbox, used=stream.used)

    async def _noticed(self, held: HttpSession, message: Message) -> None:
        if message.method == "notifications/initialized":
            held.session.ready.set()
        elif message.method == "notifications/cancelled":
            identity = params_of(message).get("requestId") or b""
            if identity in held.running:
                held.running[identity].cancel()
        else:
            self._directory.tell(message.method or "", message.params)

    async def _modern_post(
        self,
        headers: Mapping[str, str],
        principal: Principal,
        message: Message,
        params: RawObject,
        receive: Receive,
        send: Send,
    ) -> None:
        if message.id is None or message.method is None:
            await respond(send, 202)
            return
        check_headers(headers, message, params)
        if message.method == "tools/call":
            mirrors = await self._desk.mirrors(text_of(params, "name"))
            check_arguments(headers, message, params, mirrors)
        session = self._modern.setdefault(
            principal, Session(_NoStream(), principal=principal, modern=True, shared=True)
        )
        stream = Stream(Questions())
        work = asyncio.create_task(self._answer(session, message, stream))
        leaving = asyncio.create_task(_left(receive, work))
        try:
            await stream.run(send, work, status=status_of)
        finally:
            leaving.cancel()
            work.cancel()

    async def _get(
        self, headers: Mapping[str, str], principal: Principal, receive: Receive, send: Send
    ) -> None:
        if EVENTS not in headers.get("accept", ""):
            raise BadRequest(406, INVALID_REQUEST, f"GET gives {EVENTS}")
        held = self._held(headers, principal)
        outbox, number = self._wanted(held, headers.get("last-event-id"))
        if before := held.followed.pop(outbox.name, None):
            before.cancel()
        following = asyncio.create_task(follow(outbox, send, number))
        held.followed[outbox.name] = following
        leaving = asyncio.create_task(_left(receive, following))
        await asyncio.wait({following})
        leaving.cancel()
        if held.followed.get(outbox.name) is following:
            del held.followed[outbox.name]

    def _wanted(self, held: HttpSession, last: str | None) -> tuple[Outbox, int]:
        """The stream that a GET asks for, and from where on: the session's own from what nobody
        took yet, or the one that the last event came on."""
        if last is None:
            own = held.streams.own
            if own.name in held.followed:
                raise BadRequest(409, INVALID_REQUEST, "this session has its stream open already")
            return own, own.taken
        found = held.streams.find(last)
        if found is None:
            raise BadRequest(400, INVALID_REQUEST, "that event is none of this session's streams")
        return found

    def _begin(self, principal: Principal) -> HttpSession:
        """A new session. Those that were quiet for long go first; where there are too many even so,
        the one of this principal that was quiet for longest."""
        now = self._clock.monotonic()
        quiet = [one for one in self._sessions.values() if not one.running and not one.followed]
        quiet.sort(key=lambda one: one.seen_at)
        for held in quiet:
            if now - held.seen_at > IDLE_SECONDS:
                self._end(held)
        own = sum(held.session.principal == principal for held in self._sessions.values())
        if len(self._sessions) >= MOST_SESSIONS or (principal.name and own >= MOST_SESSIONS_EACH):
            oldest = next((one for one in quiet if self._is_open_for(one, principal)), None)
            if oldest is None:
                raise BadRequest(503, INVALID_REQUEST, "too many sessions are open already")
            self._end(oldest)
        questions, streams = Questions(), Streams()
        session = Session(_Away(questions, streams.own), principal=principal)
        session.id = secrets.token_urlsafe(24)
        held = HttpSession(session, questions, streams, now)
        self._sessions[session.id] = held
        self._audience.join(session)
        return held

    def _is_open_for(self, held: HttpSession, principal: Principal) -> bool:
        return held.session.id in self._sessions and held.session.principal == principal

    def _held(self, headers: Mapping[str, str], principal: Principal) -> HttpSession:
        """The session that a request names, if it is its own."""
        name = headers.get("mcp-session-id", "")
        if not name:
            raise BadRequest(400, INVALID_REQUEST, "the Mcp-Session-Id header is missing")
        held = self._sessions.get(name)
        if held is None or held.session.principal != principal:
            raise BadRequest(404, INVALID_REQUEST, "this session is over, or never was")
        held.seen_at = self._clock.monotonic()
        return held

    def _end(self, held: HttpSession) -> None:
        self._sessions.pop(held.session.id, None)
        self._audience.leave(held.session)
        held.questions.close()
        for task in [*held.running.values(), *held.followed.values()]:
            task.cancel()

    def _answering(
        self, held: HttpSession, message: Message, stream: Stream
    ) -> "asyncio.Task[bytes]":
        """The task that answers a request of a session; a cancelled one has nothing to say."""
        identity = message.id or b""
        task = asyncio.create_task(self._answer(held.session, message, stream))
        held.running[identity] = task
        task.add_done_callback(lambda _: held.running.pop(identity, None))
        return task

    async def _answer(self, session: Session, message: Message, stream: Stream) -> bytes:
        identity = message.id or b""

        def caller_of(envelope: Envelope | None) -> Caller:
            return Caller(session, stream, envelope, identity)

        try:
            return answer_line(identity, await self._desk.reply(message, caller_of))
        except asyncio.CancelledError:
            return b""


class _Away:
    """The way to an agent of the handshake era when no request of its is under way."""

    def __init__(self, questions: Questions, outbox: Outbox) -> None:
        self._questions = questions
        self._outbox = outbox

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._outbox.put, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._outbox.put(line_of(method, params))


class _NoStream:
    """The way to an agent of the modern era outside of its requests: there is none."""

    async def request(self, method: str, params: bytes) -> Reply:
        return Reply(error=error_body(METHOD_NOT_FOUND, method))

    async def notify(self, method: str, params: bytes = b"") -> None:
        return None


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, INVALID_REQUEST, "the client left")
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _left(receive: Receive, work: "asyncio.Task[Any]") -> None:
    """Cancel `work` when the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        continue
    work.cancel()
