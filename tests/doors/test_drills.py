"""Drills with replicas: rolling restarts, and a database that dies, freezes and comes back."""

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.doors.address import BOTH, said
from tests.doors.conftest import script
from tests.doors.peer import ENVELOPE, LEGACY, MODERN
from tests.doors.reading import everything, key_in
from tests.doors.replicas import Proxy, Replica, replicas
from tests.doors.servers.data import big_markdown
from tests.postgres import Cluster, cluster

MOST_WAIT_SECONDS = 0.3
"""The longest that a lost database may hold up a call."""
BUSY_SECONDS = 0.7
"""Allowance for the machine of the tests, on which other tests run."""
FACT = "The harbour gate opens at dawn, once warden Lindqvist has lowered both chains"
QUESTION = "When does the harbour gate open in the morning?"


class Client:
    """An agent that calls tools, with a connection that it keeps as long as the server does."""

    def __init__(self, port: int, token: str) -> None:
        self._http = httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": BOTH,
                "Content-Type": "application/json",
            },
            timeout=60,
        )
        self._numbers = itertools.count(1)

    async def modern(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool without a session."""
        params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        return await self._post("tools/call", params, headers)

    async def begin(self) -> str:
        """Open a session of the handshake era. Returns its name."""
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "drill"}}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        answer = await self._http.post("/mcp", json=body)
        answer.raise_for_status()
        return str(answer.headers["mcp-session-id"])

    async def legacy(self, session: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool in a session."""
        headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY}
        return await self._post("tools/call", {"name": tool, "arguments": arguments}, headers)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _post(
        self, method: str, params: dict[str, Any], headers: dict[str, str]
    ) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params}
        answer = await self._http.post("/mcp", json=body, headers=headers)
        answer.raise_for_status()
        result: dict[str, Any] = answer.json()["result"]
        assert not result.get("isError"), result
        return result


async def calls(client: Client, done: asyncio.Event, counts: Counter[str]) -> None:
    """Call a tool without a session until `done`."""
    for number in itertools.count():
        if done.is_set():
            return
        text = f"call {number}"
        assert said(await client.modern("up__echo", text=text)) == text
        counts["calls"] += 1


@pytest.mark.parametrize("rounds", [2])
async def test_a_rolling_restart_drops_no_call(tmp_path: Path, rounds: int) -> None:
    url = cluster().database()
    for name in "ab":  # both accept the same token, as behind a load balancer
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text("the-token-of-both-gateways\n")
    with replicas(tmp_path, url, "a", "b") as pair:
        async with Proxy([replica.port for replica in pair]) as proxy:
            done, counts = asyncio.Event(), Counter[str]()
            clients = [Client(proxy.port, pair[0].token) for _ in range(4)]
            calling = [asyncio.create_task(calls(client, done, counts)) for client in clients]
            for replica in pair * rounds:
                await asyncio.sleep(1)
                assert await asyncio.to_thread(replica.stop) == 0
                await asyncio.sleep(0.5)
                if any(task.done() for task in calling):
                    break
                await asyncio.to_thread(replica.start)
            done.set()
            await asyncio.gather(*calling)
            for client in clients:
                await client.aclose()
    assert counts["calls"] > 100


async def test_a_replica_that_ends_says_so_and_finishes_its_calls(tmp_path: Path) -> None:
    with replicas(tmp_path, cluster().database(), "a") as (one,):
        client = Client(one.port, one.token)
        slow = asyncio.create_task(client.modern("up__slow", seconds=3))
        await asyncio.sleep(0.5)
        assert one.process
        one.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert await asyncio.to_thread(one.status, "/readyz") == 503
        assert await asyncio.to_thread(one.status, "/healthz") == 200
        assert said(await Client(one.port, one.token).modern("up__echo", text="late")) == "late"
        assert (await slow)["content"]
        assert await asyncio.to_thread(one.process.wait, 30) == 0
        assert await asyncio.to_thread(one.status, "/readyz") == 0
        await client.aclose()


def test_a_server_that_is_tried_again_does_not_take_a_replica_out_of_service(
    tmp_path: Path,
) -> None:
    servers = {"up": script("upstream"), "gone": [sys.executable, "-c", "raise SystemExit(1)"]}
    replica = Replica(tmp_path, "a", cluster().database(), servers).start()
    try:
        end, statuses = time.monotonic() + 3.0, Counter[int]()
        while time.monotonic() < end:
            statuses[replica.status("/readyz")] += 1
        assert set(statuses) == {200}
    finally:
        replica.stop()


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    own = Cluster()
    yield own
    own.thaw()
    own.remove()


@pytest.fixture
def replica(tmp_path: Path, own_cluster: Cluster) -> Iterator[Replica]:
    url = own_cluster.database()
    with replicas(tmp_path, url, "a", surface={"cooldown_seconds": 0.0}) as (one,):
        remember(one, FACT)
        yield one


def remember(replica: Replica, text: str) -> None:
    """Store a memory with the command of a replica's home."""
    command = [sys.executable, "-m", "upwell", "remember", text]
    subprocess.run(command, env=replica.environment, cwd="/", timeout=60, check=True)


@pytest.mark.parametrize("end", ["kill", "freeze", "stop"])
async def test_calls_go_on_without_the_database(
    replica: Replica, own_cluster: Cluster, end: str
) -> None:
    client = Client(replica.port, replica.token)
    waits = await timed_calls(client, seconds=1.0)
    usual = sorted(waits)[len(waits) // 2]
    key = key_in(await client.modern("up__big_markdown"))
    await asyncio.to_thread(getattr(own_cluster, end))
    lost = await timed_calls(client, seconds=3.0)
    slow = [wait for wait in lost if wait > usual + MOST_WAIT_SECONDS + BUSY_SECONDS]
    assert not slow, f"{len(slow)} of {len(lost)} calls took up to {max(slow):.2f} s"
    assert sorted(lost)[len(lost) // 2] < usual * 3 + 0.05
    began = time.monotonic()
    assert await read_by(key, client)
    assert time.monotonic() - began < MOST_WAIT_SECONDS + BUSY_SECONDS
    assert key_in(await client.modern("up__big_markdown")) == key
    if end == "freeze":
        await asyncio.to_thread(own_cluster.thaw)
    else:
        await asyncio.to_thread(own_cluster.start)
    await recovered(client)
    await client.aclose()
    # The first call that succeeds may be ahead of the task that reports the database as back.
    deadline = time.monotonic() + 20
    while len(lines := _of_database(replica)) < 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert len(lines) == 2, lines
    assert "PostgreSQL is lost" in lines[0]
    assert "check the server, its disk and store.url" in lines[0]
    assert "PostgreSQL answers again" in lines[1]


def _of_database(replica: Replica) -> list[str]:
    """The lines of a replica's log that are about the database."""
    return [line for line in replica.log.splitlines() if "PostgreSQL" in line]


async def test_cut_connections_are_replaced(replica: Replica, own_cluster: Cluster) -> None:
    client = Client(replica.port, replica.token)
    for _ in range(3):
        await asyncio.to_thread(own_cluster.cut_connections)
        await timed_calls(client, seconds=0.3)
        await recovered(client)
    await client.aclose()


async def timed_calls(client: Client, seconds: float) -> list[float]:
    """Make calls for some time; none may fail. Returns the seconds that each took."""
    waits = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        text = f"src/gate{random.randrange(1000)}.py opens the gate"
        assert said(await client.modern("up__echo", text=text)) == text
        waits.append(time.monotonic() - began)
        await asyncio.sleep(0.01)
    return waits


async def read_by(key: str, client: Client) -> bool:
    """Whether an original can be read."""
    answer = everything(await client.modern("upwell__read_more", key=key, offset=0))
    return big_markdown().startswith(answer[:1000])


async def recovered(client: Client) -> None:
    """Wait until memories surface again."""
    end = time.monotonic() + 20
    while True:
        found = everything(await client.modern("upwell__memory_context", message=QUESTION))
        if FACT in found:
            return
        assert time.monotonic() < end, found
        await asyncio.sleep(0.1)
