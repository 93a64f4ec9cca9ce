"""The disk of the database is full: calls go on, refusals give the reason, and everything recovers
when there is space again."""

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.peer import ENVELOPE, MODERN
from tests.doors.reading import everything, key_in
from tests.doors.replicas import replicas
from tests.doors.test_drills import (
    BUSY_SECONDS,
    FACT,
    MOST_WAIT_SECONDS,
    Client,
    read_by,
    recovered,
    remember,
    timed_calls,
)
from tests.postgres import Cluster
from tests.small_disk import SmallDisk
from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory
from upwell.memory.postgres.store import PostgresStore

MEGABYTES = 96
"""A new cluster takes 27 MB, and its write-ahead log as much again."""
NO_SPACE = "No space left on device"


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    small = SmallDisk(MEGABYTES)
    yield small
    small.remove()


class Writer:
    """Stores memories one after the other. A memory is `acknowledged` or has a reason in
    `refused`."""

    def __init__(self, url: str) -> None:
        self._store = PostgresStore(Postgres(url))
        self.acknowledged: set[str] = set()
        self.refused: dict[str, str] = {}

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            words = " ".join(f"kettle{number}x{word}" for word in range(40))
            try:
                await self._store.add([Memory(text=words, id=str(number))])
                self.acknowledged.add(str(number))
            except StoreError as error:
                self.refused[str(number)] = f"{error.message} {error.hint}"
            await asyncio.sleep(0.01)

    async def present(self) -> set[str]:
        return set(await self._store.stamps(limit=1_000_000))

    async def aclose(self) -> None:
        await self._store.aclose()


async def wait_for(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("part", ["tables", "log"])
async def test_a_full_disk_stops_writes_and_nothing_else(
    tmp_path: Path, upwell: Upwell, disk: SmallDisk, part: str
) -> None:
    """Without space for tables, PostgreSQL refuses statements. Without space for its write-ahead
    log, it stops, and the test starts it again, as a service manager would."""
    own = Cluster(**{part: disk.path})
    url = own.database()
    writer = Writer(url)
    with replicas(tmp_path, url, "a", surface={"cooldown_seconds": 0.0}) as (replica,):
        remember(replica, FACT)
        client = Client(replica.port, replica.token)
        key = key_in(await client.modern("up__big_markdown"))
        usual = sorted(await timed_calls(client, seconds=1.0))
        await noted(client, "tide0 turns at noon")
        writing = asyncio.create_task(writer.run())
        await wait_for(lambda: len(writer.acknowledged) > 20)

        disk.fill()
        await wait_for(lambda: writer.refused)
        disk.fill()  # PostgreSQL may have freed some space
        waits = await timed_calls(client, seconds=4.0)
        slow = [w for w in waits if w > usual[len(usual) // 2] + MOST_WAIT_SECONDS + BUSY_SECONDS]
        assert not slow, f"{len(slow)} of {len(waits)} calls took up to {max(slow):.2f} s"
        stored, refusal = await notes_until_refused(client)
        # On a thread: the writer of this event loop may hold the lock that the command needs.
        remembered = await asyncio.to_thread(
            upwell, "remember", "The tide turned", env={"UPWELL_STORE__URL": url}
        )
        assert (remembered.code, len(remembered.err.splitlines())) == (1, 1)
        if part == "tables":
            assert NO_SPACE in everything(refusal)
            assert NO_SPACE in remembered.err
            assert "free space on the database's disk" in remembered.err
            assert any(NO_SPACE in reason for reason in writer.refused.values())
        assert await read_by(key, client)
        refused_before = len(writer.refused)

        disk.free()
        if part == "log":
            await wait_for(lambda: not own.is_running())
            await asyncio.to_thread(own.start)
        acknowledged = len(writer.acknowledged)
        await wait_for(lambda: len(writer.acknowledged) > acknowledged + 10)
        await recovered(client)
        await noted(client, "The tide turns at six")
        found = everything(await client.modern("upwell__search_memory", query=f"tide{stored}"))
        assert f"tide{stored} " in found, "an acknowledged note is lost"
        assert len(writer.refused) >= refused_before > 0
        writing.cancel()
        await client.aclose()
        present = await writer.present()
        assert writer.acknowledged <= present
        assert len(present & writer.refused.keys()) <= 1, "only a commit may be cut in the middle"
        hits = upwell("recall", "kettle1x3", "--json", env={"UPWELL_STORE__URL": url}).json["hits"]
        assert [hit["id"] for hit in hits][:1] == ["1"]
    await writer.aclose()
    own.remove()


async def note(client: Client, content: str) -> dict[str, Any]:
    """Store a note over MCP. Returns the result, which may be an error."""
    params = {
        "name": "upwell__add_memory",
        "arguments": {"content": content},
        "_meta": ENVELOPE,
    }
    headers = {
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "upwell__add_memory",
    }
    body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}
    result: dict[str, Any] = (await client._http.post("/mcp", json=body, headers=headers)).json()
    return dict(result["result"])


async def notes_until_refused(client: Client) -> tuple[int, dict[str, Any]]:
    """Store notes until one is refused, because some still fit into pages that have room. Returns
    the number of the last stored one, and the refusal."""
    for number in range(1, 200):
        refusal = await note(client, f"tide{number} turns {random.randbytes(1_000).hex()}")
        if refusal.get("isError"):
            return number - 1, refusal
    raise AssertionError("the disk is not full")


async def noted(client: Client, content: str) -> None:
    """Wait until a note can be stored again."""
    end = time.monotonic() + 20
    while (answer := await note(client, content)).get("isError"):
        assert time.monotonic() < end, everything(answer)
        await asyncio.sleep(0.2)
