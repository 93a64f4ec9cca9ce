"""Checks that the headers and the body of an HTTP request agree, and sends the response: a JSON
body, or a stream of events.

A response becomes a stream if a handshake-era client prefers events, if a message is sent before
the reply, or after some seconds of silence, so that no proxy closes the connection.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from upwell.gateway.clients import text_of
from upwell.gateway.eras import (
    CLIENT_CAPABILITIES,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    PROTOCOL_VERSION,
    UNSUPPORTED_VERSION,
    meta_of,
)
from upwell.ground.background import Receipt
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.lines import unbroken
from upwell.wire.mirrors import NAMED, Mirror, decoded, differing
from upwell.wire.peer import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Message,
    PeerGone,
    answer_line,
    error_body,
    line_of,
    read_message,
    settle,
)
from upwell.wire.rawjson import NotJson, RawObject, kind_of

EVENTS, JSON = "text/event-stream", "application/json"


class BadRequest(Exception):
    """The response is an HTTP error with a JSON-RPC error as its body."""

    def __init__(self, status: int, code: int, why: str, identity: bytes = b"null") -> None:
        super().__init__(why)
        self.status = status
        self.line = answer_line(identity, Reply(error=error_body(code, why)))


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return a request's headers by lower-case name. An MCP header that occurs twice is a
    BadRequest, because a proxy might read the first one, while a server reads the last one."""
    headers: dict[str, str] = {}
    for key, value in raw:
        name = key.decode("latin-1").lower()
        if name in headers and name.startswith("mcp-"):
            raise BadRequest(400, HEADER_MISMATCH, f"the {name} header occurs twice")
        headers[name] = value.decode("latin-1")
    return headers


def message_of(headers: Mapping[str, str], body: bytes) -> Message:
    """Read the message in the body of a POST. Raises BadRequest if the headers are not valid for a
    POST, or the body is not one message."""
    accept = headers.get("accept", "")
    if (JSON not in accept or EVENTS not in accept) and "*/*" not in accept:
        why = f"the Accept header of a POST must include {JSON} and {EVENTS}"
        raise BadRequest(406, INVALID_REQUEST, why)
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise BadRequest(415, INVALID_REQUEST, f"the body of a POST must be {JSON}")
    try:
        if kind_of(body) != "object":
            raise BadRequest(400, INVALID_REQUEST, "the body must be one JSON object")
        message = read_message(body)
    except NotJson as error:
        raise BadRequest(400, PARSE_ERROR, f"not a JSON-RPC message: {error}") from error
    if message.repaired:
        # Replacement characters would reach the tool as if the agent had meant them.
        raise BadRequest(400, PARSE_ERROR, "the body is not UTF-8")
    if message.method is None and message.id is None:
        raise BadRequest(400, INVALID_REQUEST, "a message needs a method or an id")
    return message


def params_of(message: Message) -> RawObject:
    try:
        return RawObject.parse(message.params)
    except NotJson:
        return RawObject()


def check_headers(headers: Mapping[str, str], message: Message, params: RawObject) -> None:
    """Check the headers that repeat parts of the body, by which a proxy may route. Raises
    BadRequest if one differs, or `_meta` lacks a required key."""
    identity = message.id or b"null"
    meta = meta_of(params)
    missing = [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]
    if missing:
        raise BadRequest(400, INVALID_PARAMS, f"_meta lacks {', '.join(missing)}", identity)
    expected = {
        "mcp-protocol-version": meta.value(PROTOCOL_VERSION),
        "mcp-method": message.method,
    }
    key = NAMED.get(message.method or "")
    if key and key in params:
        expected["mcp-name"] = text_of(params, key)
    for name, value in expected.items():
        if decoded(headers.get(name)) != value:
            why = f"the {name} header differs from the body"
            raise BadRequest(400, HEADER_MISMATCH, why, identity)


def status_of(line: bytes) -> int:
    """The HTTP status for a reply to a modern client."""
    if b'"error":' not in line[:400]:
        return 200
    try:
        error = RawObject.parse(line).get("error")
        code = RawObject.parse(error).value("code") if error else None
    except NotJson:
        return 200
    if code == METHOD_NOT_FOUND:
        return 404
    return 400 if code in (UNSUPPORTED_VERSION, HEADER_MISMATCH, MISSING_CAPABILITY) else 200


def check_arguments(
    headers: Mapping[str, str], message: Message, params: RawObject, mirrors: tuple[Mirror, ...]
) -> None:
    """Raises BadRequest if a header differs from the argument that it must repeat."""
    header = differing(mirrors, params.get("arguments") or b"{}", headers)
    if header is not None:
        why = f"the {header} header differs from the arguments"
        raise BadRequest(400, HEADER_MISMATCH, why, message.id or b"null")


MAX_LINES = 1000
"""How many messages a stream retains. The oldest are dropped first."""
MAX_SENT_BYTES = 512 * 1024
"""How many bytes of sent messages a stream retains. All ended streams of a session together also
retain at most this many bytes.
"""
MAX_RETAINED_BYTES = 8 * 1024 * 1024
"""How many bytes of messages a stream retains, sent or not. The oldest messages are dropped first,
but never the last one.
"""
MAX_STREAMS = 32
OWN_STREAM = "0"
"""The name of a session's own stream, for messages that belong to no request."""


class Outbox:
    """The messages of one stream, numbered from 1. Each reader reads from its own position. Sent
    messages are retained for clients that reconnect."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.ended = False
        self.last_read = 0
        """The number of the newest message that any reader has received."""
        self.count = 0
        self.size = 0
        """The size of the retained messages in bytes."""
        self._lines: deque[tuple[int, bytes]] = deque()
        self._more = asyncio.Event()

    def put(self, line: bytes) -> None:
        self.count += 1
        self._lines.append((self.count, line))
        self.size += len(line)
        if len(self._lines) > MAX_LINES:
            self._drop()
        while self.size > MAX_RETAINED_BYTES and len(self._lines) > 1:
            self._drop()
        self._wake()

    def end(self) -> None:
        """End the stream. Its messages can still be read."""
        self.ended = True
        self._wake()

    def after(self, number: int) -> list[tuple[int, bytes]]:
        lines = [entry for entry in self._lines if entry[0] > number]
        self.last_read = max(self.last_read, lines[-1][0] if lines else 0)
        while self.size > MAX_SENT_BYTES and self._lines[0][0] <= self.last_read:
            self._drop()
        return lines

    async def wait_for_more(self, number: int) -> None:
        while self.count <= number and not self.ended:
            await self._more.wait()

    def identity(self, number: int) -> str:
        """The id of an event, or "" if the stream has no name."""
        return f"{self.name}-{number}" if self.name else ""

    def _wake(self) -> None:
        # Readers that come later wait for a new event, because this one stays set.
        self._more.set()
        self._more = asyncio.Event()

    def _drop(self) -> None:
        self.size -= len(self._lines.popleft()[1])


class Streams:
    """A session's streams, which a client can resume."""

    def __init__(self) -> None:
        self.own = Outbox(OWN_STREAM)
        self._streams: dict[str, Outbox] = {}
        self._last = 0

    def begin(self) -> Outbox:
        self._last += 1
        name = str(self._last)
        outbox = self._streams[name] = Outbox(name)
        return outbox

    def finish(self, outbox: Outbox, *, used: bool) -> None:
        """End a stream after its reply. If the stream was not `used`, it is forgotten, because the
        client has no event id from which to resume it.
        """
        outbox.end()
        if not used:
            self._streams.pop(outbox.name, None)
        ended = [stream for stream in self._streams.values() if stream.ended]
        size = sum(stream.size for stream in ended)
        while ended and (size > MAX_SENT_BYTES or len(ended) > MAX_STREAMS):
            oldest = ended.pop(0)
            size -= oldest.size
            del self._streams[oldest.name]

    def find(self, identity: str) -> tuple[Outbox, int] | None:
        """Return the stream and message number that an event id refers to, or None if unknown."""
        name, _, number = identity.partition("-")
        outbox = self.own if name == self.own.name else self._streams.get(name)
        if outbox is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        return (outbox, int(number)) if int(number) <= outbox.count else None


Sent = MutableMapping[str, Any]
Send = Callable[[Sent], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

RETRY_MS = 1_000
"""How long a client should wait before it reconnects. This value is sent with every stream."""
SILENCE_SECONDS = 10.0

JSON_HEADERS: Headers = ((b"content-type", b"application/json"),)
_EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class OpenRequests:
    """The open requests to a client. Their ids are unique within the client's session."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._next = 0

    async def ask(self, put: Callable[[bytes], None], method: str, params: bytes) -> Reply:
        """Put a request on a stream and wait for the reply. If the wait is cancelled, so is the
        request. Raises PeerGone if the session has ended, and ProtocolError for a reply with
        neither a result nor an error."""
        self._next += 1
        identity = b"%d" % self._next
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        put(line_of(method, params, identity))
        try:
            return await future
        except asyncio.CancelledError:
            cancelled = b'{"requestId":%b,"reason":"cancelled"}' % identity
            put(line_of("notifications/cancelled", cancelled))
            raise
        finally:
            self._waiting.pop(identity, None)

    def answered(self, message: Message) -> None:
        future = self._waiting.get(message.id or b"")
        if future is not None and not future.done():
            settle(future, message)

    def close(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerGone("the session ended"))


class Stream:
    """The response to one POST, and a channel to its client until the reply is sent. Later messages
    go to `fallback`, if given. A `primed` stream begins with an event id from which the client can
    resume."""

    def __init__(
        self,
        questions: OpenRequests,
        fallback: Outbox | None = None,
        outbox: Outbox | None = None,
        *,
        primed: bool = False,
    ) -> None:
        self._questions = questions
        self._fallback = fallback
        self._outbox = outbox or Outbox()
        self._primed = primed
        self._has_messages = False
        self.used = False
        self.receipt = Receipt()
        """Settled by `HttpFront`, which knows whether the client is still connected."""

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._put, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._put(line_of(method, params))

    async def run(
        self,
        send: Send,
        work: "asyncio.Task[bytes]",
        *,
        events: bool = False,
        status: Callable[[bytes], int] = lambda _: 200,
    ) -> None:
        """Send messages until `work` returns the reply, then send the reply unless it is empty. The
        response is a stream of events only if `events` is set, if a message is sent before the
        reply, or after `SILENCE_SECONDS`.
        """
        work.add_done_callback(self._end)
        if not events:
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await self._outbox.wait_for_more(0)
            except TimeoutError:
                LOG.debug("nothing to send for %g s: the answer becomes a stream", SILENCE_SECONDS)
        if events or not work.done() or self._has_messages:
            self.used = True
            await follow(self._outbox, send, 0, primed=self._primed)
        elif answer := b"" if work.cancelled() else work.result():
            await respond(send, status(answer), answer, JSON_HEADERS)
        else:
            await respond(send, 202)

    def _end(self, work: "asyncio.Task[bytes]") -> None:
        self._has_messages = self._outbox.count > 0
        if not work.cancelled() and not work.exception() and (line := work.result()):
            self._outbox.put(line)
        self._outbox.end()

    def _put(self, line: bytes) -> None:
        if self._outbox.ended and self._fallback is not None:
            self._fallback.put(line)
        else:
            self._outbox.put(line)


async def follow(outbox: Outbox, send: Send, number: int, *, primed: bool = False) -> None:
    await begin(send, 200, _EVENTS)
    body = b"retry: %d\n" % RETRY_MS
    body += b"id: %b\ndata:\n\n" % outbox.identity(number).encode() if primed else b": open\n\n"
    while True:
        fresh, ended = outbox.after(number), outbox.ended
        body += b"".join(event(line, outbox.identity(position)) for position, line in fresh)
        number = fresh[-1][0] if fresh else number
        await send({"type": "http.response.body", "body": body, "more_body": not ended})
        if ended:
            return
        body = b""
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await outbox.wait_for_more(number)
        except TimeoutError:
            body = b": waiting\n\n"


def event(line: bytes, identity: str = "") -> bytes:
    name = b"id: %b\n" % identity.encode() if identity else b""
    return b"event: message\n%bdata: %b\n\n" % (name, unbroken(line))


async def begin(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def respond(send: Send, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    await begin(send, status, [*headers, (b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.body", "body": body})
