"""Answers over HTTP: a JSON body where nothing is said before the answer, else a stream of events.

A stream begins with the first thing that is said before the answer, or after some seconds of
silence, so that nobody in between gives the connection up.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from upwell.gateway.replay import Outbox
from upwell.ground.types import Reply
from upwell.wire.lines import framed
from upwell.wire.peer import Message, PeerGone, line_of, settle

Sent = MutableMapping[str, Any]
Send = Callable[[Sent], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

SILENCE_SECONDS = 10.0

_JSON: Headers = ((b"content-type", b"application/json"),)
_EVENTS: Headers = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class Questions:
    """What a client was asked over HTTP and has not answered. Ids are ours, for all its streams."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, asyncio.Future[Reply]] = {}
        self._next = 0

    async def ask(self, say: Callable[[bytes], None], method: str, params: bytes) -> Reply:
        """Put a question on a stream and wait. A cancelled wait is told there.

        Raises:
            PeerGone: the session ended first.
            PeerBabbled: the answer is none.
        """
        self._next += 1
        identity = b"%d" % self._next
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        say(line_of(method, params, identity))
        try:
            return await future
        except asyncio.CancelledError:
            withdrawn = b'{"requestId":%b,"reason":"cancelled"}' % identity
            say(line_of("notifications/cancelled", withdrawn))
            raise
        finally:
            self._waiting.pop(identity, None)

    def answered(self, message: Message) -> None:
        """An answer came; one that nobody waits for is left alone."""
        future = self._waiting.get(message.id or b"")
        if future is not None and not future.done():
            settle(future, message)

    def close(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerGone("the session ended"))


class Stream:
    """The answer to one POST, and a channel to its client while it lasts. After that, what is said
    goes to `elsewhere`, the stream that the client keeps open for it. `primed`: the client is given
    an id to come back with before anything else."""

    def __init__(
        self,
        questions: Questions,
        elsewhere: Outbox | None = None,
        outbox: Outbox | None = None,
        *,
        primed: bool = False,
    ) -> None:
        self._questions = questions
        self._elsewhere = elsewhere
        self._outbox = outbox or Outbox()
        self._primed = primed
        self._spoke = False
        self.used = False

    async def request(self, method: str, params: bytes) -> Reply:
        return await self._questions.ask(self._say, method, params)

    async def notify(self, method: str, params: bytes = b"") -> None:
        self._say(line_of(method, params))

    async def run(
        self,
        send: Send,
        work: "asyncio.Task[bytes]",
        *,
        events: bool = False,
        status: Callable[[bytes], int] = lambda _: 200,
    ) -> None:
        """Send what is said until `work` has the last line ("" where there is none); then that. A
        stream of events only when there is something to say before, or after some silence."""
        work.add_done_callback(self._end)
        said = asyncio.create_task(self._outbox.more(0))
        try:
            if not events:
                await asyncio.wait(
                    {work, said}, timeout=SILENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
            if events or not work.done() or self._spoke:
                self.used = True
                await follow(self._outbox, send, 0, primed=self._primed)
                return
            last = b"" if work.cancelled() else work.result()
            if last:
                await respond(send, status(last), last, _JSON)
            else:
                await respond(send, 202)
        finally:
            said.cancel()

    def _end(self, work: "asyncio.Task[bytes]") -> None:
        """The answer is the last thing on the stream."""
        self._spoke = self._outbox.count > 0
        if not work.cancelled() and not work.exception() and (line := work.result()):
            self._outbox.put(line)
        self._outbox.end()

    def _say(self, line: bytes) -> None:
        if self._outbox.ended and self._elsewhere is not None:
            self._elsewhere.put(line)
        else:
            self._outbox.put(line)


async def follow(outbox: Outbox, send: Send, number: int, *, primed: bool = False) -> None:
    """Send what is said after a number as a stream of events, until its end or until we are
    cancelled."""
    await begin(send, 200, _EVENTS)
    body = b": open\n\n"
    if primed:
        body = b"id: %b\ndata:\n\n" % outbox.identity(number).encode()
    while True:
        fresh, ended = outbox.after(number), outbox.ended
        body += b"".join(event(line, outbox.identity(place)) for place, line in fresh)
        number = fresh[-1][0] if fresh else number
        await send({"type": "http.response.body", "body": body, "more_body": not ended})
        if ended:
            return
        body = b""
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                await outbox.more(number)
        except TimeoutError:
            body = b": waiting\n\n"


def event(line: bytes, identity: str = "") -> bytes:
    """A message as a server-sent event: one line of data whatever is in it."""
    name = b"id: %b\n" % identity.encode() if identity else b""
    return b"event: message\n%bdata: %b\n" % (name, framed(line))


async def begin(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def respond(send: Send, status: int, body: bytes = b"", headers: Headers = ()) -> None:
    """A whole response."""
    await begin(send, status, [*headers, (b"content-length", b"%d" % len(body))])
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, status: int, body: bytes) -> None:
    await respond(send, status, body, _JSON)
