"""Events arrive whole, however the body is cut, and events over the cap are reported with their
size."""

from collections.abc import AsyncIterator

import pytest

from upwell.wire.lines import SseEvent, read_events

BODY = (
    b": comment\n\nid: 7\nretry: 50\ndata:\n\nevent: note\r\ndata: one\r\ndata: t wo\r\n\r\n"
    b"data:no space\n\nid: 8\ndata: \xc3\xa9 1.10\nunknown: x\n\ndata: never finished\n"
)


async def events(body: bytes, step: int, most: int = 1000) -> list[SseEvent]:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), step):
            yield body[at : at + step]

    return [event async for event in read_events(chunks(), most)]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 64, 10_000])
async def test_events_are_read_at_any_cut(step: int) -> None:
    first, second, third, fourth = await events(BODY, step)
    assert (first.id, first.retry_ms, first.data) == ("7", 50, b"")
    assert (second.name, second.data) == ("note", b"one\nt wo")
    assert third.data == b"no space"
    assert (fourth.id, fourth.data) == ("8", "é 1.10".encode())


@pytest.mark.parametrize("step", [1000, 4096, 100_000])
@pytest.mark.parametrize("size", [5000, 20_000, 60_000])
async def test_an_event_that_is_too_large_is_reported_with_its_size(step: int, size: int) -> None:
    body = b'data: {"id":1,' + b"x" * size + b"\n\ndata: after\n\n"
    large, after = await events(body, step, most=2000)
    assert large.oversize == size + 8
    assert large.data.startswith(b'{"id":1,')
    assert len(large.data) <= 4096
    assert (after.data, after.oversize) == (b"after", 0)
