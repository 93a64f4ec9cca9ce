"""Lines wait for room, and no line is lost."""

import asyncio

from upwell.wire.lines import Line, LineQueue


async def test_a_writer_waits_while_the_queue_is_full() -> None:
    inbox, lines = LineQueue(max_bytes=10), []

    async def put_all() -> None:
        for number in range(20):
            await inbox.put(Line(b"%d" % number * 4))
        inbox.end()

    putting = asyncio.create_task(put_all())
    await asyncio.sleep(0)
    assert inbox.size <= 10
    assert not putting.done()
    async for line in inbox.lines():
        lines.append(line.data)
        await asyncio.sleep(0)
        assert inbox.size <= 10
    assert lines == [b"%d" % number * 4 for number in range(20)]


async def test_a_single_large_line_passes_and_our_own_lines_never_wait() -> None:
    inbox = LineQueue(max_bytes=10)
    await asyncio.wait_for(inbox.put(Line(b"x" * 100)), 5)
    inbox.add(Line(b"last word"))
    inbox.end()
    assert [len(line.data) async for line in inbox.lines()] == [100, 9]
