import asyncio

import pytest

from upwell.ground.types.rpc import Reply
from upwell.wire.lines import Line
from upwell.wire.peer import LARGE_BYTES, Message, Peer, PeerGone, ProtocolError, read_message
from upwell.wire.rawjson import NotJson


class Wire:
    """The other side: records written lines, and sends the lines of a test."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self._incoming: asyncio.Queue[Line | None] = asyncio.Queue()
        self.heard: list[Message] = []

    async def write(self, line: bytes) -> None:
        self.written.append(line)

    async def aclose(self) -> None:
        return None

    def says(self, data: bytes, oversize: int = 0) -> None:
        self._incoming.put_nowait(Line(data, oversize))

    def hangs_up(self) -> None:
        self._incoming.put_nowait(None)

    async def lines(self):
        while (line := await self._incoming.get()) is not None:
            yield line

    async def hear(self, message: Message) -> None:
        self.heard.append(message)


@pytest.fixture
async def wire():
    return Wire()


@pytest.fixture
async def peer(wire):
    peer = Peer(wire.lines(), wire, wire.hear)
    reading = asyncio.create_task(peer.run())
    yield peer
    wire.hangs_up()
    await asyncio.wait_for(reading, 5)


async def asking(peer: Peer) -> "asyncio.Task[Reply]":
    task = asyncio.create_task(peer.request("tools/call", b"{}"))
    await asyncio.sleep(0)
    return task


async def test_an_error_is_passed_on_unchanged(wire, peer):
    task = await asking(peer)
    wire.says(b'{"id":1,"error":{"code":-32042,"message":"m","data":[1.0]}}')
    assert (await task).error == b'{"code":-32042,"message":"m","data":[1.0]}'


async def test_an_answer_with_neither_result_nor_error_is_reported(wire, peer):
    task = await asking(peer)
    wire.says(b'{"id":1}')
    with pytest.raises(ProtocolError):
        await task


async def test_foreign_duplicate_and_meaningless_lines_change_nothing(wire, peer):
    task = await asking(peer)
    for junk in (b"junk", b"[]", b"{}", b'{"id":99,"result":{}}', b"\xff\xfe", b"null"):
        wire.says(junk)
    wire.says(b'{"id":1,"result":{"a":1}}')
    wire.says(b'{"id":1,"result":{"a":2}}')
    assert (await task).result == b'{"a":1}'


async def test_bad_utf8_is_repaired_and_counted(wire, peer):
    task = await asking(peer)
    wire.says(b'{"id":1,"result":{"t":"a\xffb"}}')
    reply = await task
    assert reply.result == '{"t":"a\ufffdb"}'.encode()
    assert reply.repaired == 1


async def test_waiting_requests_fail_when_the_other_side_disconnects(wire, peer):
    task = await asking(peer)
    wire.hangs_up()
    with pytest.raises(PeerGone):
        await task
    with pytest.raises(PeerGone):
        await peer.request("ping", b"{}")


async def test_a_cancelled_wait_is_reported_to_the_other_side(wire, peer):
    task = await asking(peer)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert b'"notifications/cancelled"' in wire.written[-1]
    assert b'"requestId":1' in wire.written[-1]


async def test_an_oversize_answer_fails_its_own_request_only(wire, peer):
    first, second = await asking(peer), await asking(peer)
    wire.says(b'{"jsonrpc":"2.0","id":2,"result":"xxxx', oversize=99_000_000)
    with pytest.raises(ProtocolError, match="99,000,000"):
        await second
    wire.says(b'{"id":1,"result":{}}')
    assert (await first).result == b"{}"


async def test_a_batch_is_split(wire, peer):
    first, second = await asking(peer), await asking(peer)
    wire.says(b'[{"id":2,"result":{"n":2}},{"id":1,"result":{"n":1}},7]')
    assert (await first).result == b'{"n":1}'
    assert (await second).result == b'{"n":2}'


@pytest.mark.parametrize("identity", [b"{}", b"[1]"])
def test_an_id_is_a_string_or_a_number(identity):
    with pytest.raises(NotJson):
        read_message(b'{"id":' + identity + b',"method":"ping"}')


async def test_requests_and_notifications_are_passed_on(wire, peer):
    wire.says(b'{"id":"x","method":"ping"}')
    wire.says(b'{"method":"notifications/progress","params":{"progress":1.0}}')
    task = await asking(peer)
    wire.says(b'{"id":1,"result":{}}')
    await task
    assert [(message.id, message.method) for message in wire.heard] == [
        (b'"x"', "ping"),
        (None, "notifications/progress"),
    ]


async def test_a_large_answer_is_settled_without_being_opened(wire, peer):
    task = await asking(peer)
    large = b'{"content":[{"type":"text","text":"' + b"x" * LARGE_BYTES + b'"}]}'
    wire.says(b'{"jsonrpc":"2.0","id":1,"result":' + large + b"}\r")
    assert (await task).result == large


async def test_a_large_answer_with_its_id_last_is_settled_too(wire, peer):
    task = await asking(peer)
    large = b'{"x":"' + b"x" * LARGE_BYTES + b'"}'
    wire.says(b'{"result":' + large + b',"id":1}')
    assert (await task).result == large


def test_a_null_id_is_refused():
    assert read_message(b'{"id":null,"method":"m"}').id is None
