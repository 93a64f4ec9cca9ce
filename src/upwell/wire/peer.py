"""One end of a JSON-RPC conversation: asks, answers, and settles every request exactly once."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from upwell.ground.trace import LOG
from upwell.ground.types import Reply
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
_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which some runtimes put before the first line that they write."""
MOST_ID_BYTES = 1024
MOST_LATE = 1_000
"""So many answers that nobody waits for any more are still known when they come."""
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ID = re.compile(rb'"id"[ \t]*+:[ \t]*+("[^"\\]{0,200}"|-?\d{1,40})')


class PeerGone(ConnectionError):
    """The other side closed the conversation, or never opened it."""


class PeerLost(PeerGone):
    """An exchange broke off: the answer to this request will not come."""


class PeerBabbled(ValueError):
    """The other side answered with something that is not an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A JSON-RPC message. `id` is the raw bytes, None for a notification. `repaired` counts bytes
    that were not UTF-8 and now read U+FFFD."""

    body: RawObject
    id: bytes | None = None
    method: str | None = None
    repaired: int = 0

    @property
    def params(self) -> bytes:
        return self.body.get("params") or b"{}"


def read_message(data: bytes) -> Message:
    """Open one message, which is one line from here on. Of a large answer only the head is read:
    its `result` is whatever follows, unopened, and whoever takes it has to look whether it is JSON.

    Raises:
        NotJson: it is not a JSON object, a line ends inside a string, or its id is no text or
            number of 1 024 bytes at most.
    """
    data, repaired = one_line(data.removeprefix(_MARK).strip()), 0
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
    if identity not in (None, b"null"):
        _check_identity(identity or b"")
    return Message(
        body=body,
        id=None if identity in (None, b"null") else identity,
        method=method if isinstance(method, str) else None,
        repaired=repaired,
    )


def _check_identity(identity: bytes) -> None:
    if len(identity) > MOST_ID_BYTES:
        raise NotJson(f"an id of {len(identity):,} bytes, over {MOST_ID_BYTES:,}")
    text = identity.startswith(b'"') and isinstance(loads(identity), str)
    if not text and not _NUMBER.fullmatch(identity):
        raise NotJson("an id must be a string or a number")


def _large_answer(data: bytes, repaired: int) -> Message | None:
    head = _ANSWER_HEAD.match(data)
    end = data.rstrip()
    if head is None or not end.endswith(b"}"):
        return None
    members = ((b'"id"', head.group(1)), (b'"result"', end[head.end() : -1]))
    return Message(body=RawObject(members), id=head.group(1), repaired=repaired)


def _unbatched(data: bytes) -> Sequence[bytes]:
    """The messages of a batch (MCP 2025-03-26 has them), or the one message."""
    if not data.lstrip().startswith(b"["):
        return (data,)
    try:
        return RawArray.parse(data).items
    except NotJson:
        return (data,)


def error_body(code: int, message: str, data: object = None) -> bytes:
    """The raw JSON of a JSON-RPC error object."""
    body: dict[str, object] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return dumps(body)


def error_code(error: bytes) -> object:
    """The code of a raw JSON-RPC error; None where there is no error."""
    return RawObject.parse(error).value("code") if error else None


def line_of(method: str, params: bytes = b"", identity: bytes = b"") -> bytes:
    """A request, or without an id a notification, as one line of JSON."""
    head = b'"id":%b,' % identity if identity else b""
    tail = b',"params":%b' % params if params else b""
    return b'{"jsonrpc":"2.0",%b"method":%b%b}' % (head, dumps(method), tail)


def answer_line(identity: bytes, reply: Reply) -> bytes:
    """The line that answers a request with a result or an error."""
    name, body = (b"error", reply.error) if reply.error else (b"result", reply.result)
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (identity, name, body)


def settle(waiting: "asyncio.Future[Reply]", message: Message) -> None:
    """Give whoever waits the answer that this message is."""
    error, result = message.body.get("error"), message.body.get("result")
    if error is not None:
        waiting.set_result(Reply(error=error, repaired=message.repaired))
    elif result is not None:
        waiting.set_result(Reply(result=result, repaired=message.repaired))
    else:
        waiting.set_exception(PeerBabbled("an answer with neither result nor error"))


Incoming = Callable[[Message], Awaitable[None]]


class Peer:
    """Speaks JSON-RPC over lines.

    `run` reads until the other side closes; requests and notifications that come in go to
    `on_message`, answers settle the request that waits for them. When the conversation ends, or an
    answer cannot be read, whoever waits is told so at once. With `complains`, a line that is no
    JSON-RPC is answered with a parse error.
    """

    def __init__(
        self,
        lines: AsyncIterator[Line],
        sink: Sink,
        on_message: Incoming,
        *,
        complains: bool = False,
    ) -> None:
        self._lines = lines
        self._sink = sink
        self._on_message = on_message
        self._complains = complains
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._late: dict[bytes, Callable[[], None]] = {}
        self._next_id = 0
        self._gone: Exception | None = None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    async def run(self) -> None:
        """Read until the end. Whatever the other side sends, this does not raise."""
        try:
            async for line in self._lines:
                await self._take(line)
                del line
        except (OSError, ValueError) as error:
            LOG.warning("reading ended: %s", error)
        finally:
            self.close(PeerGone("the connection was closed"))

    def close(self, why: Exception) -> None:
        """Tell everybody who waits that there will be no answer."""
        self._gone = self._gone or why
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(why)

    async def request(
        self, method: str, params: bytes, late: Callable[[], None] | None = None
    ) -> Reply:
        """Ask and wait. When the wait is cancelled the other side is told; `late` hears of an
        answer that comes all the same.

        Raises:
            PeerGone: the conversation ended first, or (PeerLost) this part of it.
            PeerBabbled: the answer has neither a result nor an error, or was too large.
        """
        if self._gone is not None:
            raise self._gone
        self._next_id += 1
        identity = b"%d" % self._next_id
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            await self._send(line_of(method, params, identity))
            return await future
        except asyncio.CancelledError:
            self._given_up(identity, late)
            await self._cancel(identity)
            raise
        finally:
            self._waiting.pop(identity, None)

    async def notify(self, method: str, params: bytes = b"") -> None:
        await self._send(line_of(method, params))

    async def answer(self, identity: bytes, reply: Reply) -> None:
        """Answer a request of the other side with a result or an error."""
        await self._send(answer_line(identity, reply))

    async def _send(self, line: bytes) -> None:
        try:
            await self._sink.write(line)
        except (ConnectionError, OSError) as error:
            raise PeerGone(f"the connection is closed: {error}") from error

    def _given_up(self, identity: bytes, late: Callable[[], None] | None) -> None:
        if late is not None:
            self._late[identity] = late
        if len(self._late) > MOST_LATE:
            del self._late[next(iter(self._late))]

    async def _cancel(self, identity: bytes) -> None:
        if self._gone is not None:
            return
        params = b'{"requestId":%b,"reason":"cancelled or out of time"}' % identity
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.notify("notifications/cancelled", params)
        except (PeerGone, TimeoutError) as error:
            LOG.debug("could not send a cancellation: %s", error)

    async def _take(self, line: Line) -> None:
        if line.lost:
            self._lose(line)
        elif line.oversize:
            self._refuse(line)
            if self._complains and (found := _ID.search(line.data)):
                said = f"a line of {line.oversize:,} bytes or more is over the limit"
                body = error_body(INVALID_REQUEST, said)
                await self.answer(found.group(1), Reply(error=body))
        else:
            await self._open(line)

    async def _open(self, line: Line) -> None:
        for data in _unbatched(line.data):
            try:
                message = read_message(data)
            except NotJson as error:
                LOG.warning("a line of %d bytes that is not JSON-RPC: %s", len(data), error)
                if self._complains:
                    body = error_body(PARSE_ERROR, f"not a JSON-RPC message: {error}")
                    await self.answer(b"null", Reply(error=body))
                continue
            if message.method is not None:
                await self._on_message(message)
            elif message.id is not None and self._complains and message.id not in self._waiting:
                body = error_body(INVALID_REQUEST, "a request needs a method")
                await self.answer(message.id, Reply(error=body))
            elif message.id is not None:
                self._settle(message.id, message)
            else:
                LOG.warning("a message of %d bytes with neither method nor id", len(data))

    def _lose(self, line: Line) -> None:
        future = self._waiting.get(line.lost)
        if future is not None and not future.done():
            future.set_exception(PeerLost(line.why))

    def _settle(self, identity: bytes, message: Message) -> None:
        future = self._waiting.get(identity)
        if late := self._late.pop(identity, None):
            late()
        if future is None or future.done():
            LOG.warning("an answer that nobody waits for, id %r", identity[:40])
            return
        settle(future, message)

    def _refuse(self, line: Line) -> None:
        """A line over the cap: fail the request it answers, or all when that cannot be told."""
        found = _ID.search(line.data)
        known = found is not None and found.group(1) in self._waiting
        hit = [found.group(1)] if found is not None and known else list(self._waiting)
        for identity in hit:
            future = self._waiting[identity]
            if not future.done():
                future.set_exception(
                    PeerBabbled(f"an answer of {line.oversize:,} bytes or more, over the limit")
                )
