"""What arrived from a server and was not read yet: bounded by its bytes, so that a server that says
more than is taken has to wait and does not fill our memory."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from upwell.wire.lines import Line

MOST_BYTES = 4 * 1024 * 1024
"""Who puts waits while there is more; one message alone may be larger."""


class Inbox:
    """Lines in the order in which they came, for one reader, until the end."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lines: deque[Line] = deque()
        self._ended = False
        self._changed = asyncio.Event()
        self.size = 0
        """Bytes that wait to be read."""

    async def put(self, line: Line) -> None:
        """Add a line when there is room for it."""
        while self._lines and self.size + len(line.data) > self._most_bytes:
            await self._change()
        self.add(line)

    def add(self, line: Line) -> None:
        """Add a line at once: a short one of our own."""
        self._lines.append(line)
        self.size += len(line.data)
        self._wake()

    def end(self) -> None:
        """Nothing that comes from now on is read."""
        self._ended = True
        self._wake()

    async def lines(self) -> AsyncIterator[Line]:
        """What came before the end."""
        while True:
            while not self._lines and not self._ended:
                await self._change()
            if not self._lines:
                return
            line = self._lines.popleft()
            self.size -= len(line.data)
            self._wake()
            yield line
            del line

    async def _change(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
