"""Newline-delimited messages over pipes: reading with a cap on size, writing without blocking.

The reader works on bytes and never decodes strictly: one bad byte must not end a session.
"""

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from upwell.ground.trace import LOG

MAX_LINE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_HEAD_BYTES = 4096
CLOSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its newline. `oversize` is how many bytes there were when it had gone over
    the cap: `data` is then only its beginning, and the rest is dropped as it comes. With `lost`
    it is no line: the request with this raw id, if it was not answered yet, never will be, and
    `why` says why."""

    data: bytes
    oversize: int = 0
    lost: bytes = b""
    why: str = ""


class Source(Protocol):
    """Where bytes come from: `b""` is the end."""

    async def read(self, most: int) -> bytes: ...


class Sink(Protocol):
    """Where lines go to."""

    async def write(self, line: bytes) -> None:
        """Send `line` and its newline.

        Raises:
            ConnectionError: nobody reads any more.
        """
        ...

    async def aclose(self) -> None: ...


class Link(Protocol):
    """A way to a server: a child process, or an address."""

    @property
    def sink(self) -> Sink: ...

    @property
    def locked_out(self) -> bool:
        """Did it end since the server wants to know who we are?"""
        ...

    async def obituary(self, patience_seconds: float = 0.5) -> str:
        """How it ended, and what it said last."""
        ...

    async def stop(self, grace_seconds: float = 2.0) -> None: ...


async def read_lines(source: Source, max_bytes: int = MAX_LINE_BYTES) -> AsyncIterator[Line]:
    """Lines of `source` until its end, blank ones left out. Linear in what is read. One that is too
    long is told as soon as it is, and read no further than to be dropped."""
    parts: list[bytes] = []
    size = 0
    while chunk := await source.read(_CHUNK_BYTES):
        pieces = chunk.split(b"\n")
        for at, piece in enumerate(pieces):
            told = size > max_bytes
            size += len(piece)
            if size > max_bytes and not told:
                yield Line(_head([*parts, piece]), oversize=size)
                parts = []
            elif not told:
                parts.append(piece)
            if at < len(pieces) - 1:
                data, parts, size = b"".join(parts), [], 0
                if data.strip():
                    yield Line(data)
                del data
    if (data := b"".join(parts)).strip():
        yield Line(data)


def framed(line: bytes) -> bytes:
    """`line` and its newline, the only one whatever is in it: a second one would begin a message
    that nobody sent. Some readers take a carriage return for one."""
    return line.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def _head(parts: Sequence[bytes]) -> bytes:
    """The first bytes of what `parts` are together, without putting it together."""
    head = b""
    for part in parts:
        if len(head) >= _HEAD_BYTES:
            break
        head += part[: _HEAD_BYTES - len(head)]
    return head


class PipeSink:
    """Writes to a child's stdin, or to our own stdout where that is a pipe or a socket."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, line: bytes) -> None:
        await self.send(framed(line))

    async def send(self, data: bytes) -> None:
        """Send `data` as it is, when what was sent before it was read. Who gives up waiting for
        that has sent nothing.

        Raises:
            ConnectionError: nobody reads any more.
        """
        if self._writer.is_closing():
            raise ConnectionResetError("the other side is gone")
        await self._writer.drain()
        self._writer.write(data)
        await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._writer.wait_closed())
        except TimeoutError:
            self._writer.transport.abort()
        except (ConnectionError, OSError) as error:
            LOG.debug("closing a pipe: %s", error)


class FileSink:
    """Writes to a file or a terminal, on a thread: those cannot be waited for otherwise."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._order = threading.Lock()

    async def write(self, line: bytes) -> None:
        await asyncio.to_thread(self._write, framed(line))

    async def aclose(self) -> None:
        return None

    def _write(self, data: bytes) -> None:
        with self._order:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]


class FileSource:
    """Reads a file or a terminal on a thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    async def read(self, most: int) -> bytes:
        return await asyncio.to_thread(os.read, self._descriptor, most)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def open_stdio() -> tuple[Source, Sink]:
    """Our own stdin and stdout as a source and a sink, whatever they are connected to.

    From here on file descriptor 1 is stderr: whatever is printed by accident cannot get between
    two messages.
    """
    loop = asyncio.get_running_loop()
    out = os.dup(1)
    os.dup2(2, 1)
    source: Source = FileSource(0)
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
