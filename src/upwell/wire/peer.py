"""One end of a JSON-RPC connection (`Peer`). It sends requests and settles each of them exactly
once. `ServerPace` keeps a server that sends too much from holding up the others.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, loads, one_line

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

LARGE_BYTES = 256 * 1024
CANCEL_SECONDS = 0.5
_ANSWER_HEAD = re.compile(
    rb'\{[ \t]*+(?:"jsonrpc"[ \t]*+:[ \t]*+"2\.0"[ \t]*+,[ \t]*+)?'
    rb'"id"[ \t]*+:[ \t]*+("[^"\\]{0,200}"|-?\d{1,40})[ \t]*+,[ \t]*+"result"[ \t]*+:'
)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some runtimes write this before their first line."""
MAX_ID_BYTES = 1024
MAX_CANCELLED = 1_000
"""How many cancelled requests are remembered in order to recognise late answers."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ECHOED_ID = re.compile(rb'"?(\d{1,18})(?:\.0+)?"?')
"""Matches an id of ours, which is an integer, as servers may return it. The official SDKs accept it
as a string or a decimal too."""
_ID = re.compile(rb'"id"[ \t]*+:[ \t]*+("[^"\\]{0,200}"|-?\d{1,40})')


class PeerGone(ConnectionError):
    """The connection is closed or was never opened."""


class PeerLost(PeerGone):
    """This request will get no answer, although the connection is still open."""


class PeerRefused(PeerGone):
    """The other side certainly did not run this request, so it may be repeated."""


class ProtocolError(ValueError):
    """The other side's answer is malformed or too large."""


class Message(Struct, frozen=True, kw_only=True):
    """A JSON-RPC message. `id` is raw JSON, or None for a notification. `repaired` is how many
    replacement characters (U+FFFD) were inserted for invalid UTF-8."""

    body: RawObject
    id: bytes | None = None
    method: str | None = None
    repaired: int = 0

    @property
    def params(self) -> bytes:
        return self.body.get("params") or b"{}"


def read_message(data: bytes) -> Message:
    """Parse one message and make it one line. Only the head of a large answer is parsed, so the
    receiver has to check that the `result` is JSON. Raises NotJson if the data is not a JSON
    object, a line ends inside a string, or the id is not a string or number of at most
    `MAX_ID_BYTES`."""
    data, repaired = one_line(data.removeprefix(_BYTE_ORDER_MARK).strip()), 0
    try:
        data.decode()
    except UnicodeDecodeError:
        mended = data.decode(errors="replace")
        repaired = mended.count("\ufffd") - data.count("\ufffd".encode())
        data = mended.encode()
    if len(data) >= LARGE_BYTES and (large := _large_answer(data, repaired)):
        return large
    body = RawObject.parse(data)
    method = body.value("method")
    identity = body.get("id")
    if identity == b"null":
        identity = None
    if identity is not None:
        if len(identity) > MAX_ID_BYTES:
            raise NotJson(f"an id of {len(identity):,} bytes, over {MAX_ID_BYTES:,}")
        is_string = identity.startswith(b'"') and isinstance(loads(identity), str)
        if not is_string and not _NUMBER.fullmatch(identity):
            raise NotJson("an id must be a string or a number")
    method = method if isinstance(method, str) else None
    return Message(body=body, id=identity, method=method, repaired=repaired)


def _large_answer(data: bytes, repaired: int) -> Message | None:
    head = _ANSWER_HEAD.match(data)
    end = data.rstrip()
    if head is None or not end.endswith(b"}"):
        return None
    members = ((b'"id"', head.group(1)), (b'"result"', end[head.end() : -1]))
    return Message(body=RawObject(members), id=head.group(1), repaired=repaired)


def error_body(code: int, message: str, data: object = None) -> bytes:
    body: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return dumps(body)


def error_code(error: bytes) -> object:
    return RawObject.parse(error).value("code") if error else None


def line_of(method: str, params: bytes = b"", identity: bytes = b"") -> bytes:
    """Return a request as one line of JSON, or a notification if there is no id."""
    head = b'"id":%b,' % identity if identity else b""
    tail = b',"params":%b' % params if params else b""
    return b'{"jsonrpc":"2.0",%b"method":%b%b}' % (head, dumps(method), tail)


def answer_line(identity: bytes, reply: Reply) -> bytes:
    name, body = (b"error", reply.error) if reply.error else (b"result", reply.result)
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (identity, name, body)


def own_id(identity: bytes) -> bytes:
    """Return the id of a request of ours from the raw id in an answer. Any other id is returned
    unchanged."""
    echoed = _ECHOED_ID.fullmatch(identity)
    return echoed[1] if echoed else identity


def settle(future: "asyncio.Future[Reply]", message: Message) -> None:
    """Complete a future with the answer in a message. `null` counts as absent, because some servers
    always write both members."""
    error, result = (
        None if part == b"null" else part
        for part in (message.body.get("error"), message.body.get("result"))
    )
    if error is not None:
        future.set_result(Reply(error=error, repaired=message.repaired))
    elif result is not None:
        future.set_result(Reply(result=result, repaired=message.repaired))
    else:
        future.set_exception(ProtocolError("it answered with neither a result nor an error"))


UNASKED_PER_SECOND = 1_000.0
UNASKED_AT_ONCE = 2_000.0
BYTES_A_MESSAGE = 4_096
"""A longer message counts as several messages."""
TURN_SECONDS = 0.002
"""How long one server's messages may be read before the event loop gets to run other tasks."""
OFFENCE_SECONDS = 60.0
"""A server that exceeds the rate for this long is restarted."""


class Flood(ValueError):
    """A server has sent too much for too long."""


class ServerPace:
    """Limits the rate of a server's messages, so that it does not hold up the others: of all but
    the answers to our requests. When a server exceeds it, we stop reading for a while, and the pipe
    fills."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._allowance = UNASKED_AT_ONCE
        self._at = now()
        self._turn_began = self._at
        self._held_since: float | None = None

    async def taken(self, unasked_bytes: int | None) -> None:
        """Count a message, and wait until the next one may be taken. `unasked_bytes` is the size of
        the message, or None if it answers a pending request. Raises Flood if the server has
        exceeded the rate for `OFFENCE_SECONDS`."""
        if unasked_bytes is not None:
            self._allowance -= 1 + unasked_bytes // BYTES_A_MESSAGE
        now = self._now()
        if self._allowance >= 0 and now - self._turn_began < TURN_SECONDS:
            return
        earned = (now - self._at) * UNASKED_PER_SECOND
        self._allowance = min(UNASKED_AT_ONCE, self._allowance + earned)
        self._at = now
        wait = max(0.0, -self._allowance / UNASKED_PER_SECOND)
        if not wait:
            if self._allowance > UNASKED_AT_ONCE / 2:
                self._held_since = None
        elif self._held_since is None:
            self._held_since = now
            LOG.warning(
                "upstream %s sends more than %d messages a second that nobody asked for; "
                "reading from it more slowly",
                self._name,
                UNASKED_PER_SECOND,
            )
        elif now - self._held_since > OFFENCE_SECONDS:
            raise Flood(f"upstream {self._name} sent too much for {OFFENCE_SECONDS:.0f} s")
        await asyncio.sleep(wait)
        self._turn_began = self._now()


Incoming = Callable[[Message], Awaitable[None]]


class Peer:
    """JSON-RPC over lines.

    `run()` reads until the other side closes the connection. It passes requests and notifications
    to `on_message`, and answers to the waiting requests. When the connection ends, all waiting
    requests fail immediately. An answer over the size limit fails its request, or all waiting
    requests if the answer's id is unknown. If `answers_malformed` is set, a malformed line is
    answered with an error. `pace` limits the rate of messages other than awaited answers.
    """

    def __init__(
        self,
        lines: AsyncIterator[Line],
        sink: Sink,
        on_message: Incoming,
        *,
        answers_malformed: bool = False,
        pace: ServerPace | None = None,
    ) -> None:
        self._lines = lines
        self._sink = sink
        self._on_message = on_message
        self._answers_malformed = answers_malformed
        self._pace = pace
        self._settled = 0
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._late: dict[bytes, Callable[[], None]] = {}
        self._next_id = 0
        self._closed_reason: Exception | None = None

    async def run(self) -> None:
        """Read until the connection ends. Never raises, whatever the other side sends."""
        try:
            async for line in self._lines:
                settled, size = self._settled, len(line.data)
                await self._take(line)
                # The line may be megabytes long, so it must not stay referenced while the next one
                # is awaited.
                del line
                if self._pace:
                    await self._pace.taken(None if self._settled > settled else size)
        except (OSError, ValueError) as error:
            LOG.warning("reading ended: %s", error)
        finally:
            self.close(PeerGone("the connection was closed"))

    def close(self, reason: Exception) -> None:
        self._closed_reason = self._closed_reason or reason
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(reason)

    async def request(
        self, method: str, params: bytes, late: Callable[[], None] | None = None
    ) -> Reply:
        """Send a request and wait for the answer. If the wait is cancelled, the other side is
        notified, and `late()` is called if the answer still arrives.

        Raises:
            PeerGone: the connection ended before the answer.
            PeerRefused: the request was not sent, or not run.
            PeerLost: the request will get no answer, although the connection is still open.
            ProtocolError: the answer has neither a result nor an error, or is too large.
        """
        if self._closed_reason is not None:
            raise PeerRefused(str(self._closed_reason))
        self._next_id += 1
        identity = b"%d" % self._next_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            await self._send(line_of(method, params, identity))
            return await future
        except asyncio.CancelledError:
            if late is not None:
                self._late[identity] = late
            if len(self._late) > MAX_CANCELLED:
                del self._late[next(iter(self._late))]
            await self._cancel(identity)
            raise
        finally:
            self._waiting.pop(identity, None)

    async def notify(self, method: str, params: bytes = b"") -> None:
        await self._send(line_of(method, params))

    async def answer(self, identity: bytes, reply: Reply) -> None:
        line = answer_line(identity, reply)
        del reply  # it may be megabytes long, and the line is a copy
        await self._send(line)

    async def _send(self, line: bytes) -> None:
        try:
            await self._sink.write(line)
        except (ConnectionError, OSError) as error:
            raise PeerGone(f"the connection is closed: {error}") from error

    async def _cancel(self, identity: bytes) -> None:
        if self._closed_reason is not None:
            return
        params = b'{"requestId":%b,"reason":"cancelled or out of time"}' % identity
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.notify("notifications/cancelled", params)
        except (PeerGone, TimeoutError) as error:
            LOG.debug("could not send a cancellation: %s", error)

    async def _take(self, line: Line) -> None:
        if line.lost:
            future = self._waiting.get(line.lost)
            if future is not None and not future.done():
                kind = PeerRefused if line.not_run else PeerLost
                future.set_exception(kind(line.reason))
        elif line.oversize:
            self._refuse(line)
            if self._answers_malformed and (match := _ID.search(line.data)):
                why = f"a line of {line.oversize:,} bytes or more is over the limit"
                body = error_body(INVALID_REQUEST, why)
                await self.answer(match.group(1), Reply(error=body))
        else:
            messages: Sequence[bytes] = (line.data,)
            if line.data.lstrip().startswith(b"["):  # a batch (MCP 2025-03-26)
                with suppress(NotJson):
                    messages = RawArray.parse(line.data).items
            for data in messages:
                await self._open(data)

    async def _open(self, data: bytes) -> None:
        try:
            message = read_message(data)
        except NotJson as error:
            LOG.warning("a line of %d bytes that is not JSON-RPC: %s", len(data), error)
            if self._answers_malformed:
                body = error_body(PARSE_ERROR, f"not a JSON-RPC message: {error}")
                await self.answer(b"null", Reply(error=body))
            return
        if message.method is not None:
            await self._on_message(message)
            return
        if message.id is None:
            LOG.warning("a message of %d bytes with neither method nor id", len(data))
            return
        identity = own_id(message.id)
        future = self._waiting.get(identity)
        if future is None and self._answers_malformed:
            body = error_body(INVALID_REQUEST, "a request needs a method")
            await self.answer(message.id, Reply(error=body))
            return
        if late := self._late.pop(identity, None):
            late()
        if future is None or future.done():
            LOG.debug("an answer to an unknown or cancelled request, id %r", identity[:40])
            return
        self._settled += 1
        settle(future, message)

    def _refuse(self, line: Line) -> None:
        """Fail the request that an oversized line answers. If the id is unknown, fail all waiting
        requests."""
        match = _ID.search(line.data)
        identity = own_id(match.group(1)) if match is not None else b""
        failed = [identity] if identity in self._waiting else list(self._waiting)
        for waiting_id in failed:
            future = self._waiting[waiting_id]
            if not future.done():
                future.set_exception(
                    ProtocolError(f"an answer of {line.oversize:,} bytes or more, over the limit")
                )
