"""What is said on the streams of a session, numbered and kept for a while, so that a client whose
connection broke goes on where it was: `Last-Event-ID`, in the handshake era only.

An event's id names its stream and its number there. Streams belong to one session; an id of another
session's is not found, and only what was said on the stream it names is said again.
"""

import asyncio
from collections import deque

MOST_KEPT = 1000
"""Messages kept of one stream; the oldest go first."""
MAX_KEPT_BYTES = 512 * 1024
"""What was sent already and is kept, of one stream, and of all streams of a session that ended."""
MOST_UNREAD_BYTES = 8 * 1024 * 1024
"""What a client has not taken yet of one stream; beyond it the oldest go, but never the last."""
MOST_STREAMS = 32
OWN_STREAM = "0"
"""The stream that a client opens by GET, for what belongs to none of its requests."""


class Outbox:
    """Lines that go out on one stream, counted from 1. Any number of readers follow it, each from
    where it stands; what no reader has taken yet is dropped only where there is far too much."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.ended = False
        self.taken = 0
        """The number up to which a reader was given everything."""
        self.count = 0
        """How much was said."""
        self.size = 0
        """Bytes that are kept."""
        self._lines: deque[tuple[int, bytes]] = deque()
        self._more = asyncio.Event()

    def put(self, line: bytes) -> None:
        self.count += 1
        self._lines.append((self.count, line))
        self.size += len(line)
        if len(self._lines) > MOST_KEPT:
            self._drop()
        while self.size > MOST_UNREAD_BYTES and len(self._lines) > 1:
            self._drop()
        self._wake()

    def end(self) -> None:
        """Nothing more will be said."""
        self.ended = True
        self._wake()

    def after(self, number: int) -> list[tuple[int, bytes]]:
        """What was said after this number and is still there."""
        found = [entry for entry in self._lines if entry[0] > number]
        self.taken = max(self.taken, found[-1][0] if found else 0)
        self._forget()
        return found

    async def more(self, number: int) -> None:
        """Wait until something was said after this number, or nothing will be."""
        while self.count <= number and not self.ended:
            await self._more.wait()

    def identity(self, number: int) -> str:
        """The id of an event; none on a stream without a name."""
        return f"{self.name}-{number}" if self.name else ""

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    def _forget(self) -> None:
        """Let go of the oldest that were sent, beyond what is kept."""
        while self.size > MAX_KEPT_BYTES and self._lines[0][0] <= self.taken:
            self._drop()

    def _drop(self) -> None:
        self.size -= len(self._lines.popleft()[1])


class Streams:
    """The streams of one session that can be taken up again."""

    def __init__(self) -> None:
        self.own = Outbox(OWN_STREAM)
        self._begun: dict[str, Outbox] = {}
        self._last = 0

    def begin(self) -> Outbox:
        """A stream for the answer to a request."""
        self._last += 1
        outbox = self._begun[str(self._last)] = Outbox(str(self._last))
        return outbox

    def ended(self, outbox: Outbox, *, used: bool) -> None:
        """Its answer was given; one that was never `used` as a stream cannot be asked for."""
        outbox.end()
        if not used:
            self._begun.pop(outbox.name, None)
        over = [one for one in self._begun.values() if one.ended]
        size = sum(one.size for one in over)
        while over and (size > MAX_KEPT_BYTES or len(over) > MOST_STREAMS):
            gone = over.pop(0)
            size -= gone.size
            del self._begun[gone.name]

    def find(self, identity: str) -> tuple[Outbox, int] | None:
        """The stream and the number that an event's id names; None where there is none such."""
        name, _, number = identity.partition("-")
        outbox = self.own if name == OWN_STREAM else self._begun.get(name)
        if outbox is None or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        return (outbox, int(number)) if int(number) <= outbox.count else None
