"""Several processes share a TTL store: its file stays within the cap, and no update is lost."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from upwell.ground.ledger import OWNER, TtlStore
from upwell.ground.sqlite.database import open_database

CAP = 2_000_000


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 1_200, 5_000, 100_000])
async def test_the_file_stays_within_the_cap(tmp_path: Path, size: int) -> None:
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    ttl_store = TtlStore(database, caps={"k": CAP})
    dice, written, last = random.Random(size), 0, ""
    while written < 10 * CAP:
        batch = {}
        for _ in range(max(1, 50_000 // size)):
            value = dice.randbytes(dice.randint(size // 2, size * 3 // 2))
            last = f"{dice.getrandbits(256):064x}"
            batch[last] = value
            written += len(last) + len(value)
        await ttl_store.put("k", batch, ttl_seconds=9e9)
    assert last in await ttl_store.get("k", [last])
    assert sum(len(item.value) for item in await ttl_store.scan("k")) > CAP / 5
    await database.aclose()
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= CAP * 1.1


async def test_the_cap_counts_the_entries_of_other_processes(tmp_path: Path) -> None:
    """A newly opened store measures the kind at its first write."""
    for _ in range(8):
        database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
        ttl_store = TtlStore(database, caps={"k": CAP})
        for _ in range(4):
            name = f"{random.getrandbits(256):064x}"
            await ttl_store.put("k", {name: b"x" * 100_000}, ttl_seconds=9e9)
        total = sum(len(item.value) for item in await ttl_store.scan("k"))
        await database.aclose()
    assert CAP / 2 < total <= CAP * 1.1


RACER = """
import asyncio, sys
from pathlib import Path
from upwell.ground.sqlite.database import open_database
from upwell.ground.ledger import OWNER, TtlStore

async def main(path, rounds):
    database = open_database(Path(path), [OWNER], synchronous="NORMAL")
    store, increments = TtlStore(database), 0
    while increments < rounds:
        item = (await store.get("race", ["count"])).get("count")
        old = item.value if item else None
        new = b"%d" % (int(old or 0) + 1)
        increments += await store.compare_and_set("race", "count", old, new, ttl_seconds=99)
    await database.aclose()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def test_processes_that_race_with_compare_and_set_lose_no_update(tmp_path: Path) -> None:
    path, rounds, processes = tmp_path / "ledger.db", 100, 3
    racers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", RACER, str(path), str(rounds))
        for _ in range(processes)
    ]
    assert [await racer.wait() for racer in racers] == [0] * processes
    database = open_database(path, [OWNER], synchronous="NORMAL")
    entries = await TtlStore(database).get("race", ["count"])
    await database.aclose()
    assert entries["count"].value == b"%d" % (rounds * processes)
