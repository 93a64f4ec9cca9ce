"""The front for streamable HTTP, which serves many agents, of either era, at one address.

In the handshake era, `Mcp-Session-Id` identifies a session, which is bound to the principal that
opened it. In the modern era, every POST is independent, and its headers must repeat parts of its
body. The application that mounts this route authenticates requests and puts the principal into the
scope. A request without a principal is not served. Request headers never reach an upstream.
Sessions last as long as the process that opened them.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from msgspec import Struct, field

from upwell.gateway.clients import Audience, Session, text_of
from upwell.gateway.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    PROTOCOL_VERSION,
    meta_of,
)
from upwell.gateway.front.streams import (
    EVENTS,
    JSON,
    JSON_HEADERS,
    BadRequest,
    OpenRequests,
    Outbox,
    Send,
    Stream,
    Streams,
    check_arguments,
    check_headers,
    follow,
    headers_of,
    message_of,
    params_of,
    respond,
    status_of,
)
from upwell.gateway.routing.router import Router
from upwell.ground.background import BackgroundTasks
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.trace import requested
from upwell.ground.types.rpc import IN_SCOPE, Principal, Reply
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

MAX_SESSIONS = 1000
MAX_SESSIONS_EACH = 250
"""How many sessions each principal except the owner may have."""
IDLE_SECONDS = 3600.0
_NAME_BYTES = 24


class HttpSession(Struct, eq=False):
    """A handshake-era session, its open requests in both directions, and its streams."""

    session: Session
    questions: OpenRequests
    streams: Streams
    used_at: float
    running: dict[bytes, "asyncio.Task[bytes]"] = field(default_factory=dict)
    followed: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    """The streams that the client has opened with GET, keyed by name."""

    @property
    def is_idle(self) -> bool:
        return not self.running and not self.followed


class HttpSessions:
    """Opening a session ends all sessions that have been idle for `IDLE_SECONDS`."""

    def __init__(self, audience: Audience, clock: Clock = SYSTEM_CLOCK) -> None:
        self._audience = audience
        self._clock = clock
        self._sessions: dict[str, HttpSession] = {}

    def open(self, principal: Principal) -> HttpSession:
        """At the limit, first end the principal's session that has been idle the longest. Raises
        BadRequest if none of its sessions is idle."""
        now = self._clock.monotonic()
        idle = [known for known in self._sessions.values() if known.is_idle]
        idle.sort(key=lambda known: known.used_at)
        while idle and now - idle[0].used_at > IDLE_SECONDS:
            self.end(idle.pop(0))
        own = sum(known.session.principal == principal for known in self._sessions.values())
        if len(self._sessions) >= MAX_SESSIONS or (principal.name and own >= MAX_SESSIONS_EACH):
            oldest = next((known for known in idle if known.session.principal == principal), None)
            if oldest is None:
                raise BadRequest(503, INVALID_REQUEST, "too many sessions are already open")
            self.end(oldest)
        questions, streams = OpenRequests(), Streams()
        session = Session(_OwnStream(questions, streams.own), principal=principal)
        session.id = secrets.token_urlsafe(_NAME_BYTES)
        opened = HttpSession(session, questions, streams, now)
        self._sessions[session.id] = opened
        self._audience.join(session)
        return opened

    def find(self, name: str, principal: Principal) -> HttpSession | None:
        known = self._sessions.get(name)
        if known is None or known.session.principal != principal:
            return None
        known.used_at = self._clock.monotonic()
        return known

    def end(self, http_session: HttpSession) -> None:
        self._sessions.pop(http_session.session.id, None)
        self._audience.leave(http_session.session)
        http_session.questions.close()
        for task in [*http_session.running.values(), *http_session.followed.values()]:
            task.cancel()

    def close(self) -> None:
        for http_session in list(self._sessions.values()):
            self.end(http_session)

    def end_streams(self) -> None:
        for http_session in self._sessions.values():
            for following in http_session.followed.values():
                following.cancel()


class _OwnStream:
    """The channel to a handshake-era agent for messages that belong to no request."""

    def __init__(self, questions: OpenRequests, outbox: Outbox) -> None:
        self._questions = questions
        self._outbox = outbox

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._outbox.put, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._outbox.put(line_of(method, params))


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PATH = "/mcp"
PRIMED_FROM = "2025-11-25"
"""From this version of the handshake era on, the stream for a POST begins with an event that has an
id and no data."""


class HttpFront:
    """The ASGI application. It expects the principal in the scope (`IN_SCOPE`)."""

    def __init__(self, router: Router, audience: Audience) -> None:
        self._router = router
        self._tasks = BackgroundTasks("requests over HTTP")
        self._sessions = HttpSessions(audience, SYSTEM_CLOCK)
        self._modern: dict[Principal, Session] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal = scope[IN_SCOPE]
        try:
            headers = headers_of(scope["headers"])
            if scope["method"] == "POST":
                body = await _body(receive)
                with requested(headers.get("traceparent", "")):
                    await self._post(headers, principal, body, receive, send)
            elif scope["method"] == "GET":
                await self._get(headers, principal, receive, send)
            elif scope["method"] == "DELETE":
                self._sessions.end(self._session_of(headers, principal))
                await respond(send, 204)
            else:
                await respond(send, 405, b"", [(b"allow", b"GET, POST, DELETE")])
        except BadRequest as error:
            await respond(send, error.status, error.line, JSON_HEADERS)
        except NotJson as error:
            unreadable = BadRequest(400, PARSE_ERROR, f"the request cannot be read: {error}")
            await respond(send, unreadable.status, unreadable.line, JSON_HEADERS)

    def end_streams(self) -> None:
        """End the streams that clients have opened with GET, so that the clients reconnect, behind
        a load balancer to another gateway."""
        self._sessions.end_streams()

    async def aclose(self) -> None:
        self._sessions.close()
        await self._tasks.aclose()

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
            opened = self._sessions.open(principal)
            name = (b"mcp-session-id", opened.session.id.encode())
            stream = Stream(opened.questions, opened.streams.own)
            line = await self._start(opened, message, stream)
            await respond(send, 200, line, [(b"content-type", JSON.encode()), name])
        else:
            if version and version not in HANDSHAKE_VERSIONS:
                raise BadRequest(400, INVALID_REQUEST, f"unsupported protocol version {version!r}")
            accept = headers.get("accept", "")
            events = 0 <= accept.find(EVENTS) < accept.find(JSON)
            known, primed = self._session_of(headers, principal), version >= PRIMED_FROM
            await self._handshake_post(known, message, receive, send, events=events, primed=primed)

    async def _handshake_post(
        self,
        http_session: HttpSession,
        message: Message,
        receive: Receive,
        send: Send,
        *,
        events: bool,
        primed: bool,
    ) -> None:
        """If the connection breaks, the request continues, because the client may reconnect to read
        the rest."""
        if message.method is None:
            http_session.questions.answered(message)
            await respond(send, 202)
        elif message.id is None:
            if message.method == "notifications/initialized":
                http_session.session.ready.set()
            elif message.method == "notifications/cancelled":
                identity = params_of(message).get("requestId") or b""
                if identity in http_session.running:
                    http_session.running[identity].cancel()
            else:
                self._router.notify(message.method, message.params)
            await respond(send, 202)
        else:
            streams = http_session.streams
            outbox = streams.begin()
            stream = Stream(http_session.questions, streams.own, outbox, primed=primed)
            watch = self._tasks.start(_disconnected(receive))
            try:
                work = self._start(http_session, message, stream)
                await stream.run(send, work, events=events)
                stream.receipt.settle(not watch.done())
            finally:
                stream.receipt.settle(False)
                watch.cancel()
                streams.finish(outbox, used=stream.used)

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
            mirrors = await self._router.mirrors(text_of(params, "name"))
            check_arguments(headers, message, params, mirrors)
        session = self._modern.setdefault(
            principal, Session(_NoStream(), principal=principal, modern=True, shared=True)
        )
        stream = Stream(OpenRequests())
        work = self._tasks.start(self._answer(session, message, stream))
        watch = self._tasks.start(_cancel_on_disconnect(receive, work))
        try:
            await stream.run(send, work, status=status_of)
            stream.receipt.settle(not watch.done())
        finally:
            stream.receipt.settle(False)
            watch.cancel()
            work.cancel()

    async def _get(
        self, headers: Mapping[str, str], principal: Principal, receive: Receive, send: Send
    ) -> None:
        if EVENTS not in headers.get("accept", ""):
            why = f"the Accept header of a GET must include {EVENTS}"
            raise BadRequest(406, INVALID_REQUEST, why)
        http_session = self._session_of(headers, principal)
        last_event, own = headers.get("last-event-id"), http_session.streams.own
        if last_event is None and own.name in http_session.followed:
            raise BadRequest(409, INVALID_REQUEST, "this session's stream is already open")
        # The stream that sent the last event, or else the session's own.
        position = (
            http_session.streams.find(last_event)
            if last_event is not None
            else (own, own.last_read)
        )
        if position is None:
            raise BadRequest(400, INVALID_REQUEST, "no stream of this session has that event")
        outbox, number = position
        if previous := http_session.followed.pop(outbox.name, None):
            previous.cancel()
        following = self._tasks.start(follow(outbox, send, number))
        http_session.followed[outbox.name] = following
        watch = self._tasks.start(_cancel_on_disconnect(receive, following))
        await asyncio.wait({following})
        watch.cancel()
        # A later GET may have replaced this one.
        if http_session.followed.get(outbox.name) is following:
            del http_session.followed[outbox.name]

    def _session_of(self, headers: Mapping[str, str], principal: Principal) -> HttpSession:
        name = headers.get("mcp-session-id", "")
        if not name:
            raise BadRequest(400, INVALID_REQUEST, "the Mcp-Session-Id header is missing")
        known = self._sessions.find(name, principal)
        if known is None:
            raise BadRequest(404, INVALID_REQUEST, "unknown or expired session")
        return known

    def _start(
        self, http_session: HttpSession, message: Message, stream: Stream
    ) -> "asyncio.Task[bytes]":
        """The task outlives the request's connection, but not the session."""
        identity = message.id or b""
        task = self._tasks.start(self._answer(http_session.session, message, stream))
        http_session.running[identity] = task
        task.add_done_callback(lambda _: http_session.running.pop(identity, None))
        return task

    async def _answer(self, session: Session, message: Message, stream: Stream) -> bytes:
        """Return the reply line, which is empty if the request was cancelled."""
        try:
            reply = await self._router.reply(message, session, stream, stream.receipt)
            return answer_line(message.id or b"", reply)
        except asyncio.CancelledError:
            # A cancelled request gets no reply. The exception must not leave this task, because
            # `_post()` awaits the task of an `initialize` request and would be cancelled too.
            return b""


class _NoStream:
    """The channel to a modern agent, which can be reached only during its requests."""

    async def request(self, method: str, params: bytes) -> Reply:
        return Reply(error=error_body(METHOD_NOT_FOUND, method))

    async def notify(self, method: str, params: bytes = b"") -> None:
        return None


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest(400, INVALID_REQUEST, "the client disconnected")
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _cancel_on_disconnect(receive: Receive, work: "asyncio.Task[Any]") -> None:
    await _disconnected(receive)
    work.cancel()
