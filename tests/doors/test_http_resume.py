"""A broken connection costs a client nothing: it resumes at its position (handshake era)."""

import asyncio
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.address import EVENTS_FIRST, Address, Conversation, said, serving
from tests.doors.conftest import script, write_config
from tests.doors.peer import LEGACY


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    folder = tmp_path_factory.mktemp("resume")
    limits = {"connect_timeout_seconds": 20.0, "call_timeout_seconds": 60.0}
    write_config(folder / "home", {"up": script("upstream")}, gateway=limits)
    with serving(folder / "home", folder / "serve.log") as served:
        yield served


@contextmanager
def opened(
    one: Conversation, verb: str, body: Any = None, **more: str
) -> Iterator[http.client.HTTPResponse]:
    """A response that is read event by event; on exit the connection is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", one.address.port, timeout=30)
    headers = {
        "Authorization": f"Bearer {one.address.token}",
        "Accept": EVENTS_FIRST,
        "Content-Type": "application/json",
        "Mcp-Session-Id": one.session,
        "MCP-Protocol-Version": LEGACY,
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    connection.request(verb, "/mcp", json.dumps(body).encode() if body else None, headers)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


Event = tuple[str, Any]


def next_event(response: http.client.HTTPResponse) -> Event | None:
    """The id and message of the next event; None at the end."""
    identity, data = "", None
    while line := response.readline():
        name, _, value = line.rstrip(b"\n").partition(b": ")
        if name == b"id":
            identity = value.decode()
        elif name.startswith(b"data"):
            data = json.loads(value) if value else {}
        elif not line.strip() and (identity or data is not None):
            return identity, data
    return None


def rest(response: http.client.HTTPResponse) -> list[Event]:
    collected: list[Event] = []
    while event := next_event(response):
        collected.append(event)
    return collected


def request(tool: str, identity: int = 7, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
    return {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}


def test_a_stream_begins_with_an_id_and_every_event_has_one(address: Address) -> None:
    session = address.begin()
    with opened(session, "POST", request("up__progress")) as response:
        events = rest(response)
    assert events[0][1] == {}
    assert [message.get("method", message.get("id")) for _, message in events[1:]] == [
        *["notifications/progress"] * 3,
        7,
    ]
    assert len({identity for identity, _ in events}) == 5
    for position, (identity, _) in enumerate(events):
        with opened(session, "GET", last_event_id=identity) as again:
            assert again.status == 200
            assert rest(again) == events[position + 1 :]


def test_an_older_client_is_not_sent_an_empty_event(address: Address) -> None:
    session = address.begin()
    body = request("up__progress")
    with opened(session, "POST", body, MCP_Protocol_Version="2025-06-18") as response:
        assert rest(response)[0][1]["method"] == "notifications/progress"


def test_an_answer_survives_its_broken_connection(address: Address) -> None:
    session = address.begin()
    with opened(session, "POST", request("up__progress", seconds=1)) as response:
        events = [next_event(response) for _ in range(3)]
    assert events[2]
    with opened(session, "GET", last_event_id=events[2][0]) as again:
        step, answer = rest(again)
    assert step[1]["params"]["message"] == "step 3"
    assert said(answer[1]["result"]) == "done"


def test_events_of_another_session_are_not_delivered(address: Address) -> None:
    first, other = address.begin(), address.begin()
    with opened(first, "POST", request("up__progress")) as response:
        [(identity, _), *_] = rest(response)
    with opened(other, "GET", last_event_id=identity) as refused:
        assert refused.status == 400
    for wrong in ("nonsense", "0-99", f"{identity}9", "999-1"):
        with opened(first, "GET", last_event_id=wrong) as refused:
            assert refused.status == 400


def test_only_messages_of_that_stream_are_replayed(address: Address) -> None:
    session = address.begin()
    with opened(session, "POST", request("up__progress", 1)) as response:
        first = rest(response)
    with opened(session, "POST", request("up__progress", 2)) as response:
        second = rest(response)
    with opened(session, "GET", last_event_id=first[0][0]) as again:
        assert rest(again) == first[1:]
    assert not {identity for identity, _ in first} & {identity for identity, _ in second}


def test_the_sessions_own_stream_is_resumed_and_taken_over(address: Address) -> None:
    session = address.begin()

    def change(name: str) -> None:
        assert session.call("up__add_tool", name=name)
        session.post("tools/list", 1)

    session.post("tools/list", 1)
    with opened(session, "GET") as own:
        change("first")
        event = next_event(own)
        assert event
        assert event[1]["method"] == "notifications/tools/list_changed"
        with opened(session, "GET") as second:
            assert second.status == 409
        with opened(session, "GET", last_event_id=event[0]) as again:
            assert again.status == 200
            change("second")
            later = next_event(again)
    assert later
    assert later[0] != event[0]
    with opened(session, "GET", last_event_id=event[0]) as once_more:
        assert next_event(once_more) == later


def test_the_modern_era_has_no_ids(address: Address) -> None:
    params = {"name": "up__progress", "arguments": {}}
    status, _, message = address.modern("tools/call", params)
    assert status == 200
    assert said(message["result"]) == "done"


class Cutter:
    """A proxy that cuts the first connection on which the gateway sends certain bytes."""

    def __init__(self, port: int, mark: bytes) -> None:
        self.port = port
        self.mark = mark
        self.cuts = 0
        self.asked: list[bytes] = []
        self._serving: set[asyncio.Task[Any]] = set()

    async def aclose(self) -> None:
        """End every connection."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0.05)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._serving.add(task)
        with ExitStack() as ended:
            # Even if it is cancelled while it connects: the server waits for each connection.
            ended.callback(writer.transport.abort)
            other, away = await asyncio.open_connection("127.0.0.1", self.port)
            ended.callback(away.transport.abort)
            forth = asyncio.create_task(self._pass(reader, away, self.asked.append))
            try:
                while data := await other.read(65_536):
                    writer.write(data)
                    await writer.drain()
                    if self.mark in data and not self.cuts:
                        self.cuts += 1
                        break
            finally:
                forth.cancel()
                await asyncio.gather(forth, return_exceptions=True)

    async def _pass(self, source: asyncio.StreamReader, sink: Any, note: Any) -> None:
        while data := await source.read(65_536):
            note(data)
            sink.write(data)


async def test_the_official_client_notices_nothing(address: Address) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    cutter = Cutter(address.port, b"step 1")
    server = await asyncio.start_server(cutter.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    headers = {"Authorization": f"Bearer {address.token}"}
    steps: list[str | None] = []

    async def stepped(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async with server, httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)
        async with Client(transport, mode="legacy", cache=None) as client:
            result = await client.call_tool(
                "up__progress", {"seconds": 2}, progress_callback=stepped
            )
        await cutter.aclose()
    assert result.content[0].text == "done"
    assert cutter.cuts == 1
    assert any(b"last-event-id" in asked.lower() for asked in cutter.asked)
    assert "step 1" in steps


@pytest.mark.parametrize("leaves", [True, False])
def test_memories_beside_a_reply_that_nobody_took_are_given_again(
    home: Path, upwell: Upwell, tmp_path: Path, leaves: bool
) -> None:
    fact = "The settlement job runs before midnight UTC, or refunds double."
    write_config(home, {"up": script("upstream")}, surface={"timeout_seconds": 20})
    assert upwell("remember", fact).code == 0
    asking = {"seconds": 1.0, "_context_query": "When does the settlement job run?"}
    with serving(home, tmp_path / "serve.log") as address:
        session = address.begin()
        with opened(session, "POST", request("up__slow", **asking)) as response:
            if leaves:
                response.close()
            else:
                assert fact in str(rest(response))
        time.sleep(2.0)
        again = session.call("up__slow", 8, **asking)
        assert (fact in str(again)) is leaves
    decisions = upwell("explain", "--json").json["decisions"]
    outcomes = [decision["outcome"] for decision in decisions if decision["tool"] == "up__slow"]
    assert outcomes == (["not_delivered", "surfaced"] if leaves else ["surfaced", "cooldown"])
