"""Notifications keep their order, before later requests, and hold nobody up."""

import asyncio

import pytest

from upwell.gateway.upstreams import connection as connections
from upwell.gateway.upstreams.connection import MAX_QUEUED, Notifications


class Server:
    """Takes a notice when it is let to."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.taken: list[str] = []

    async def take(self, method: str, params: bytes) -> None:
        await self.open.wait()
        self.taken.append(method)


@pytest.fixture
async def server() -> Server:
    return Server()


async def test_a_request_comes_after_what_was_told_before_it(server: Server) -> None:
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


async def test_what_is_not_taken_in_time_is_given_up(
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


async def test_only_so_many_wait(server: Server) -> None:
    queue = Notifications("s", server.take)
    for number in range(2 * MAX_QUEUED):
        queue.put(str(number))
    server.open.set()
    await asyncio.wait_for(queue.sent(), 5)
    assert server.taken == [str(number) for number in range(MAX_QUEUED)]
