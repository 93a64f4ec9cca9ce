import asyncio
import os

from upwell.wire import lines
from upwell.wire.lines import Line, PipeSink, read_lines


class Chunks:
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    async def read(self, most: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


async def lines_of(*chunks: bytes, max_bytes: int = 100) -> list[Line]:
    return [line async for line in read_lines(Chunks(*chunks), max_bytes)]


async def test_lines_are_joined_across_chunks():
    result = await lines_of(b'{"a"', b":1}\n{}", b"\n\n \nlast")
    assert [line.data for line in result] == [b'{"a":1}', b"{}", b"last"]


async def test_an_oversize_line_keeps_its_beginning_and_is_reported_at_once():
    result = await lines_of(b'{"id":7,"x":"', b"y" * 5000, b"y" * 5000, b'"}\n{"id":8}\n')
    assert result[0].oversize == 13 + 5000
    assert result[0].data.startswith(b'{"id":7')
    assert len(result[0].data) <= 4096
    assert result[1:] == [Line(b'{"id":8}')]


async def test_an_oversize_line_without_an_end_is_reported_once():
    result = await lines_of(b'{"id":7,', *[b"y" * 99] * 500)
    assert [line.oversize for line in result] == [107]


async def test_carriage_returns_belong_to_the_line():
    assert await lines_of(b"{}\r\n") == [Line(b"{}\r")]


async def test_a_pipe_that_closes_as_its_time_runs_out_raises_nothing(monkeypatch):
    """With fifty gateways on two cores the pipe of a worker is closed in that very moment."""
    monkeypatch.setattr(lines, "CLOSE_SECONDS", 0.01)
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(writing, "wb")
    )
    never = loop.create_future()
    protocol._get_close_waiter = lambda _: never
    sink = PipeSink(asyncio.StreamWriter(transport, protocol, None, loop))
    await sink.aclose()
    assert transport.is_closing()
    never.cancel()
    os.close(reading)
