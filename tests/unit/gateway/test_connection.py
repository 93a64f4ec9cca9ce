"""Notifications keep their order, precede later requests, and delay nothing."""

import asyncio

import pytest

from upwell.gateway.upstreams import connection as connections
from upwell.gateway.upstreams.connection import MAX_QUEUED, Notifications


class Server:
    """Reads a notification once it is allowed to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.taken: list[str] = []

    async def take(self, method: str, params: bytes) -> None:
        await self.open.wait()
        self.taken.append(method)


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_a_request_follows_earlier_notifications(server: Server) -> None:
    queue = Notifications("s", server.take)
    queue.put("one")
    queue.put("two")
    asked = asyncio.create_task(queue.sent())
    await asyncio.sleep(0)
    queue.put("three")
    assert not asked.done()
    server.open.set()
    await asyncio.wait_for(asked, 5)
    assert server.taken[:2] == ["one", "two"]
    await asyncio.wait_for(queue.sent(), 5)
    assert server.taken == ["one", "two", "three"]


async def test_a_notification_that_is_not_read_in_time_is_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.05)
    queue = Notifications("s", server.take)
    for _ in range(2 * MAX_QUEUED):
        queue.put("lost")
    await asyncio.wait_for(queue.sent(), 5)
    assert server.taken == []
    server.open.set()
    queue.put("taken")
    await asyncio.wait_for(queue.sent(), 5)
    assert server.taken == ["taken"]


async def test_a_bounded_number_of_notifications_waits(server: Server) -> None:
    queue = Notifications("s", server.take)
    for number in range(2 * MAX_QUEUED):
        queue.put(str(number))
    server.open.set()
    await asyncio.wait_for(queue.sent(), 5)
    assert server.taken == [str(number) for number in range(MAX_QUEUED)]
