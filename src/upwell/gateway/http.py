"""The server in front on streamable HTTP: any number of agents, in either era, at one address.

Handshake era: sessions by `Mcp-Session-Id`, each bound to who opened it. Modern era: every POST is
on its own, and its headers have to say what its body says. Who may come in at all is the business
of whoever mounts this route; nothing of a request's headers ever reaches an upstream.
"""

import asyncio
import base64
import secrets
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from upwell.gateway.audience import Audience
from upwell.gateway.client import Caller, Session, text_of
from upwell.gateway.desk import Desk
from upwell.gateway.directory import Directory
from upwell.gateway.eras import (
    CLIENT_CAPABILITIES,
    HANDSHAKE_VERSIONS,
    HEADER_MISMATCH,
    MODERN_VERSIONS,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    Envelope,
    meta_of,
)
from upwell.gateway.streams import (
    Outbox,
    Questions,
    Send,
    Stream,
    follow,
    line_of,
    respond,
    respond_json,
)
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.principal import IN_SCOPE, OWNER, Principal
from upwell.ground.types import Reply
from upwell.wire.peer import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    answer_line,
    error_body,
    read_message,
)
from upwell.wire.rawjson import NotJson, RawObject, kind_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PATH = "/mcp"
MOST_SESSIONS = 1000
IDLE_SECONDS = 3600.0
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_EVENTS, _JSON = "text/event-stream", "application/json"


class BadRequest(Exception):
    """A request that gets an HTTP error, and a JSON-RPC error as its body."""

    def __init__(self, status: int, code: int, why: str, identity: bytes = b"null") -> None:
        super().__init__(why)
        self.status = status
        self.line = answer_line(identity, Reply(error=error_body(code, why)))


@dataclass(slots=True, eq=False)
class HttpSession:
    """An agent of the handshake era."""

    session: Session
    questions: Questions
    outbox: Outbox
    seen_at: float
    running: dict[bytes, "asyncio.Task[bytes]"] = field(default_factory=dict)
    listening: "asyncio.Task[None] | None" = None


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
        headers = {key.decode("latin-1"): v.decode("latin-1") for key, v in scope["headers"]}
        principal = scope.get(IN_SCOPE, OWNER)
        try:
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
        message = _message(headers, body)
        version = headers.get("mcp-protocol-version", "")
        params = _params(message)
        if version in MODERN_VERSIONS or PROTOCOL_VERSION in meta_of(params):
            await self._modern_post(headers, principal, message, params, receive, send)
        elif message.method == "initialize" and message.id is not None:
            held = self._begin(principal)
            name = (b"mcp-session-id", held.session.id.encode())
            work = self._answering(held, message, Stream(held.questions, held.outbox))
            await respond(send, 200, await work, [(b"content-type", _JSON.encode()), name])
        else:
            if version and version not in HANDSHAKE_VERSIONS:
                raise BadRequest(400, INVALID_REQUEST, f"unsupported protocol version {version!r}")
            accept = headers.get("accept", "")
            events = 0 <= accept.find(_EVENTS) < accept.find(_JSON)
            await self._handshake_post(self._held(headers, principal), message, send, events=events)

    async def _handshake_post(
        self, held: HttpSession, message: Message, send: Send, *, events: bool
    ) -> None:
        """Events from the start where the client names them first; else only where needed."""
        if message.method is None:
            held.questions.answered(message)
            await respond(send, 202)
        elif message.id is None:
            await self._noticed(held, message)
            await respond(send, 202)
        else:
            stream = Stream(held.questions, held.outbox)
            await stream.run(send, self._answering(held, message, stream), events=events)

    async def _noticed(self, held: HttpSession, message: Message) -> None:
        if message.method == "notifications/initialized":
            held.session.ready.set()
        elif message.method == "notifications/cancelled":
            identity = _params(message).get("requestId") or b""
            if identity in held.running:
                held.running[identity].cancel()
        else:
            await self._directory.tell(message.method or "", message.params)

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
        _check_headers(headers, message, params)
        session = self._modern.setdefault(
            principal, Session(_NoStream(), principal=principal, modern=True)
        )
        stream = Stream(Questions(), None)
        work = asyncio.create_task(self._answer(session, message, stream))
        leaving = asyncio.create_task(_left(receive, work))
        try:
            await stream.run(send, work, status=_status)
        finally:
            leaving.cancel()
            work.cancel()

    async def _get(
        self, headers: Mapping[str, str], principal: Principal, receive: Receive, send: Send
    ) -> None:
        if _EVENTS not in headers.get("accept", ""):
            raise BadRequest(406, INVALID_REQUEST, f"GET gives {_EVENTS}")
        held = self._held(headers, principal)
        if held.listening is not None and not held.listening.done():
            raise BadRequest(409, INVALID_REQUEST, "this session has its stream open already")
        held.listening = asyncio.create_task(follow(held.outbox, send))
        leaving = asyncio.create_task(_left(receive, held.listening))
        await asyncio.wait({held.listening})
        leaving.cancel()

    def _begin(self, principal: Principal) -> HttpSession:
        """A new session; the one that was quiet the longest goes when there are too many."""
        now = self._clock.monotonic()
        for held in [one for one in self._sessions.values() if now - one.seen_at > IDLE_SECONDS]:
            if not held.running and (held.listening is None or held.listening.done()):
                self._end(held)
        if len(self._sessions) >= MOST_SESSIONS:
            raise BadRequest(503, INVALID_REQUEST, f"{MOST_SESSIONS} sessions are open already")
        questions, outbox = Questions(), Outbox()
        session = Session(_Away(questions, outbox), principal=principal)
        session.id = secrets.token_urlsafe(24)
        held = HttpSession(session, questions, outbox, now)
        self._sessions[session.id] = held
        self._audience.join(session)
        return held

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
        for task in [*held.running.values(), *([held.listening] if held.listening else [])]:
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


def _message(headers: Mapping[str, str], body: bytes) -> Message:
    accept = headers.get("accept", "")
    if (_JSON not in accept or _EVENTS not in accept) and "*/*" not in accept:
        raise BadRequest(406, INVALID_REQUEST, f"POST gives {_JSON} or {_EVENTS}: accept both")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        raise BadRequest(415, INVALID_REQUEST, f"POST takes {_JSON}")
    try:
        if kind_of(body) != "object":
            raise BadRequest(400, INVALID_REQUEST, "one message at a time, as a JSON object")
        message = read_message(body)
    except NotJson as error:
        raise BadRequest(400, PARSE_ERROR, f"not a JSON-RPC message: {error}") from error
    if message.method is None and message.id is None:
        raise BadRequest(400, INVALID_REQUEST, "a message has a method or an id")
    return message


def _params(message: Message) -> RawObject:
    try:
        return RawObject.parse(message.params)
    except NotJson:
        return RawObject()


def _check_headers(headers: Mapping[str, str], message: Message, params: RawObject) -> None:
    """Headers have to say what the body says; whoever routes by them must not be deceived."""
    identity = message.id or b"null"
    meta = meta_of(params)
    missing = [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]
    if missing:
        raise BadRequest(400, INVALID_PARAMS, f"_meta lacks {', '.join(missing)}", identity)
    said = {
        "mcp-protocol-version": meta.value(PROTOCOL_VERSION),
        "mcp-method": message.method,
    }
    key = _NAMED.get(message.method or "")
    if key and key in params:
        said["mcp-name"] = text_of(params, key)
    for name, value in said.items():
        if _decoded(headers.get(name)) != value:
            raise BadRequest(
                400, HEADER_MISMATCH, f"the {name} header does not say what the body says", identity
            )


def _decoded(value: str | None) -> str | None:
    """A header value, which is in base64 where HTTP could not carry it."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except ValueError:
        return None


def _status(line: bytes) -> int:
    """The HTTP status that goes with an answer of the modern era."""
    if b'"error":' not in line[:400]:
        return 200
    error = RawObject.parse(line).get("error")
    code = RawObject.parse(error).value("code") if error else None
    if code == METHOD_NOT_FOUND:
        return 404
    return 400 if code in (UNSUPPORTED_VERSION, HEADER_MISMATCH) else 200
