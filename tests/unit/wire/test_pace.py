"""Messages of a server that nobody asked for are taken at a bounded rate, and in turns."""

import asyncio
import time

import pytest

from upwell.wire import peer as module
from upwell.wire.lines import Line
from upwell.wire.peer import (
    OFFENCE_SECONDS,
    UNASKED_AT_ONCE,
    UNASKED_PER_SECOND,
    Flood,
    Message,
    Peer,
    ServerPace,
)


class Hours:
    """A clock that moves when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.asyncio, "sleep", self._sleep)

    def time(self) -> float:
        return self.now

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_a_burst_passes_and_a_flood_is_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = Hours(monkeypatch)
    pace = ServerPace("loud", now=hours.time)
    for _ in range(int(UNASKED_AT_ONCE)):
        await pace.taken(100)
    assert hours.now == 0
    for _ in range(int(UNASKED_PER_SECOND)):
        await pace.taken(100)
    assert hours.now == pytest.approx(1, abs=0.1)


async def test_a_sender_that_never_stops_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hours = Hours(monkeypatch)
    pace = ServerPace("loud", now=hours.time)

    async def flood() -> None:
        while hours.now < OFFENCE_SECONDS * 2:
            await pace.taken(100)

    with pytest.raises(Flood, match="loud"):
        await flood()
    assert hours.now == pytest.approx(OFFENCE_SECONDS, abs=2)
    assert len([record for record in caplog.records if "loud" in record.message]) == 1


@pytest.mark.parametrize(
    "message",
    [
        b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}',
        b'{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{}}',
        b'{"jsonrpc":"2.0","id":999999,"result":{}}',
        b"no JSON",
    ],
)
async def test_others_get_their_turns_while_one_floods(message: bytes) -> None:
    async def flood():
        while True:
            yield Line(message)

    async def ignore(_: Message) -> None:
        return None

    class Nowhere:
        async def write(self, line: bytes) -> None:
            return None

        async def aclose(self) -> None:
            return None

    peer = Peer(flood(), Nowhere(), ignore, pace=ServerPace("loud"))
    reading = asyncio.create_task(peer.run())
    turns = []
    for _ in range(100):
        # CPU time, because other processes may hold this one up.
        start = time.thread_time()
        await asyncio.sleep(0.005)
        turns.append(time.thread_time() - start)
    reading.cancel()
    # Two may be longer: a full collection of the test process's garbage takes a tenth of a second.
    assert sorted(turns)[-3] < 0.1
