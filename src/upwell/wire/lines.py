"""Read and write newline-delimited messages over pipes, and read server-sent events (WHATWG HTML,
section 9.2.6).

The readers limit the size of a line or an event, of which they report only the beginning. They work
on bytes, so one invalid byte does not end a session.
"""

import asyncio
import contextlib
import os
import re
import stat
import threading
from collections import deque
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Protocol

from msgspec import Struct, field

from upwell.ground.trace import LOG

_HEAD_BYTES = 4096
_ID = re.compile(rb"[\x21-\x7e]{1,1024}")
"""Matches ids that can be sent back in a header. Any other id is ignored."""
_RETRY = re.compile(rb"[0-9]{1,9}")


class SseEvent(Struct):
    """One event. `oversize` is the size of the data if it exceeds the limit, and otherwise 0."""

    name: str = "message"
    data: bytes = b""
    id: str | None = None
    retry_ms: int | None = None
    oversize: int = 0


class _Building(Struct):
    event: SseEvent = field(default_factory=SseEvent)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0

    def add(self, line: bytes, dropped_bytes: int, max_bytes: int) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.size += len(value) + dropped_bytes
            if self.size <= max_bytes:
                self.parts.append(value)
            else:
                self.parts = [b"\n".join([*self.parts, value])[:_HEAD_BYTES]]
        elif name == b"event":
            self.event.name = value.decode(errors="replace")
        elif name == b"id" and _ID.fullmatch(value):
            self.event.id = value.decode()
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.event.retry_ms = int(value)

    def done(self, max_bytes: int) -> SseEvent:
        self.event.data = b"\n".join(self.parts)
        self.event.oversize = self.size if self.size > max_bytes else 0
        return self.event


async def read_events(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[SseEvent]:
    """Yield the events of a body, in linear time. An unfinished event at the end of the body is
    dropped, as the specification requires."""
    building = _Building()
    async for line, dropped_bytes in _lines(chunks, max_bytes):
        if line:
            building.add(line, dropped_bytes, max_bytes)
            continue
        if building.parts or building.event.id is not None or building.event.retry_ms is not None:
            yield building.done(max_bytes)
        building = _Building()


async def _lines(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[tuple[bytes, int]]:
    """Yield each line without its line ending (LF or CRLF), with the number of bytes dropped from
    it. Bytes beyond the size limit are dropped."""
    parts: list[bytes] = []
    size = retained_bytes = 0
    async for chunk in chunks:
        pieces = chunk.split(b"\n")
        for piece in pieces[:-1]:
            yield b"".join([*parts, piece]).removesuffix(b"\r"), size - retained_bytes
            parts, size, retained_bytes = [], 0, 0
        size += len(pieces[-1])
        if size <= max_bytes + _HEAD_BYTES or not parts:
            parts.append(pieces[-1])
            retained_bytes += len(pieces[-1])


MAX_LINE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
CLOSE_SECONDS = 0.5


class Line(Struct, frozen=True):
    """One line without its newline.

    For a line over the size limit, `oversize` is its size so far, and `data` is only its beginning.
    If `lost` is set, the object is not a line. It reports that the request with this raw id will
    not be answered, for the given `reason`. `not_run`: the server certainly did not run it.
    """

    data: bytes
    oversize: int = 0
    lost: bytes = b""
    reason: str = ""
    not_run: bool = False


class ByteSource(Protocol):
    """`b""` marks its end."""

    async def read(self, most: int) -> bytes: ...


class Sink(Protocol):
    async def write(self, line: bytes) -> None:
        """Send `line` and its newline. Raises ConnectionError if the reader has closed the
        connection."""
        ...


class ServerLink(Protocol):
    """A connection to a server: a child process or a URL."""

    @property
    def sink(self) -> Sink: ...

    @property
    def locked_out(self) -> bool:
        """True if the connection ended because the server requires a login."""
        ...

    async def exit_reason(self) -> str: ...

    async def stop(self, grace_seconds: float = 2.0) -> None: ...


async def read_lines(source: ByteSource, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[Line]:
    """Yield the non-blank lines of `source` until its end, in linear time. A line over `max_bytes`
    is reported as soon as it exceeds the limit, and the rest of it is dropped."""
    # Many parts of a large line would leave holes all over the heap. This grows in place, and its
    # value is no copy.
    begun = BytesIO()
    size = 0
    while chunk := await source.read(_CHUNK_BYTES):
        pieces = chunk.split(b"\n")
        for index, piece in enumerate(pieces):
            is_last, is_reported = index == len(pieces) - 1, size > max_bytes
            is_whole = size == 0 and not is_last
            size += len(piece)
            if size > max_bytes and not is_reported:
                head = begun.getvalue()[:_HEAD_BYTES]
                yield Line(head + piece[: _HEAD_BYTES - len(head)], oversize=size)
                begun = BytesIO()
            elif not is_reported and not is_whole:
                begun.write(piece)
            if not is_last:
                data = piece if is_whole else begun.getvalue()
                is_over = size > max_bytes
                begun, size = BytesIO(), 0
                if not is_over and data.strip():
                    yield Line(data)
                # `data` may be megabytes long, so it must not stay referenced during the next read.
                del data
    if (data := begun.getvalue()).strip():
        yield Line(data)


def unbroken(line: bytes) -> bytes:
    """A line end inside would let a line forge a second message, and some readers treat a carriage
    return as one."""
    return line.replace(b"\r", b" ").replace(b"\n", b" ")


class PipeSink:
    """Writes to a child's stdin, or to our own stdout if that is a pipe or a socket."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, line: bytes) -> None:
        # A large line is not copied for its newline, but a small one is sent at once.
        if len(line) > _CHUNK_BYTES:
            await self.send(unbroken(line), b"\n")
        else:
            await self.send(unbroken(line) + b"\n")

    async def send(self, data: bytes, end: bytes = b"") -> None:
        """Waits while the reader is behind. Raises ConnectionError if it has closed the
        connection."""
        if self._writer.is_closing():
            raise ConnectionResetError("the other side has closed the connection")
        # Wait for room before the write, so that a caller that is cancelled during the wait has
        # sent nothing, rather than half a message.
        await self._writer.drain()
        self._writer.write(data)
        if end:
            self._writer.write(end)
        await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._writer.wait_closed())
        except TimeoutError:
            # A transport that has just lost its pipe cannot be aborted, because it no longer has an
            # event loop.
            with contextlib.suppress(AttributeError):
                self._writer.transport.abort()
        except (ConnectionError, OSError) as error:
            LOG.debug("closing a pipe: %s", error)


class FileSink:
    """Writes to a file or a terminal in a thread, because the event loop cannot wait for these."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._order = threading.Lock()

    async def write(self, line: bytes) -> None:
        def written() -> None:
            with self._order:
                view = memoryview(unbroken(line) + b"\n")
                while view:
                    view = view[os.write(self._descriptor, view) :]

        await asyncio.to_thread(written)


class FileSource:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, most: int) -> bytes:
        return await asyncio.to_thread(os.read, self._descriptor, most)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def open_stdio() -> tuple[ByteSource, Sink]:
    """Return our own stdin and stdout, whatever they are connected to.

    Afterwards, file descriptor 1 points to stderr, so that a stray print cannot corrupt the
    protocol.
    """
    loop = asyncio.get_running_loop()
    out = os.dup(1)
    os.dup2(2, 1)
    source: ByteSource = FileSource(0)
    if _is_pipe(0):
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0)
        )
        source = reader
    if not _is_pipe(out):
        return source, FileSink(out)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(out, "wb", 0)
    )
    return source, PipeSink(asyncio.StreamWriter(transport, protocol, None, loop))


MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""A writer waits if its message would make the queue larger than this. An empty queue accepts any
message."""


class LineQueue:
    """A queue of lines for one reader, bounded by size."""

    def __init__(self, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lines: deque[Line] = deque()
        self._ended = False
        self._changed = asyncio.Event()
        self.size = 0
        """The size of the queued lines in bytes."""

    async def put(self, line: Line) -> None:
        while self._lines and self.size + len(line.data) > self._max_bytes:
            await self._changed.wait()
        self.add(line)

    def add(self, line: Line) -> None:
        """Add a line, usually a short one of our own, without waiting for room."""
        self._lines.append(line)
        self.size += len(line.data)
        self._wake()

    def end(self) -> None:
        self._ended = True
        self._wake()

    async def lines(self) -> AsyncIterator[Line]:
        while True:
            while not self._lines and not self._ended:
                await self._changed.wait()
            if not self._lines:
                return
            line = self._lines.popleft()
            self.size -= len(line.data)
            self._wake()
            yield line
            del line

    def _wake(self) -> None:
        # Tasks that start to wait later must not see this event set, so they get a new one.
        self._changed.set()
        self._changed = asyncio.Event()
