"""Read server-sent events (WHATWG HTML, section 9.2.6) as bytes.

The data of an event keeps every byte, except that its lines are joined with LF. For an event over
the size limit, only the size and the beginning are reported.
"""

import re
from collections.abc import AsyncIterator

from msgspec import Struct, field

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
        """Add a line from which `dropped_bytes` were dropped."""
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
