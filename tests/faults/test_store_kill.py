"""kill -9 at any moment: no acknowledged memory is lost, none is doubled, the store opens.

Two writers and a reader, each a process of its own, on one file. 1 000 rounds are run by hand
before a release (`pytest -m slow` runs 200).
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from upwell.ground.db import open_database
from upwell.ground.limits import Deadline
from upwell.ground.types import Query, Scope
from upwell.memory.schema import OWNER
from upwell.memory.sqlite import SqliteStore

WRITER = """
    import asyncio, sys
    from pathlib import Path
    from upwell.ground.db import open_database
    from upwell.ground.types import Memory
    from upwell.memory.schema import OWNER
    from upwell.memory.sqlite import SqliteStore

    async def main(path, name):
        store = SqliteStore(open_database(Path(path), [OWNER], synchronous="FULL"))
        print("ready", flush=True)
        i = 0
        while True:
            token = f"{name}x{i}"
            await store.add([Memory(text=f"token {token} kettle", id=token)])
            print(token, flush=True)
            i += 1

    asyncio.run(main(*sys.argv[1:]))
"""
READER = """
    import asyncio, sys
    from pathlib import Path
    from upwell.ground.db import open_database
    from upwell.ground.limits import Deadline
    from upwell.ground.types import Query
    from upwell.memory.schema import OWNER
    from upwell.memory.sqlite import SqliteStore

    async def main(path):
        store = SqliteStore(open_database(Path(path), [OWNER], synchronous="FULL"))
        print("ready", flush=True)
        while True:
            await store.search(Query(texts=("kettle",)), Deadline.after(10))

    asyncio.run(main(*sys.argv[1:]))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.stderr and process.stderr.read()
    return process


def kill(process: subprocess.Popen[str]) -> list[str]:
    """End it without mercy. Returns the whole lines it had printed; it must not have failed."""
    assert process.poll() is None, process.stderr and process.stderr.read()
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate()
    return [line for line in out.split("\n")[:-1] if line]


async def stored(path: Path) -> list[str]:
    database = open_database(path, [OWNER], synchronous="FULL")
    store = SqliteStore(database)
    kept = [memory.id for memory in await store.list(Scope(), limit=1_000_000)]
    assert await database.read(lambda db: db.execute("PRAGMA quick_check").fetchall()) == [("ok",)]
    await database.write(
        lambda db: db.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 0)")
    )
    if kept:
        hits = await store.search(Query(texts=(kept[0],)), Deadline.after(10))
        assert hits
    await database.aclose()
    return kept


def rounds(path: Path, count: int) -> None:
    rng = random.Random(7)
    acknowledged: set[str] = set()
    for number in range(count):
        writers = [start(WRITER, str(path), f"r{number}w{i}") for i in range(2)]
        reader = start(READER, str(path))
        time.sleep(rng.uniform(0.02, 0.25))
        for process in rng.sample(writers, 2):
            acknowledged |= set(kill(process))
        kill(reader)
        kept = asyncio.run(stored(path))
        assert len(kept) == len(set(kept))
        assert acknowledged <= set(kept)
        extra = set(kept) - acknowledged
        assert len(extra) <= 2 * (number + 1), "only what was under way may be there as well"
    assert len(acknowledged) > count
    assert not list(path.parent.glob("*.corrupt-*"))


def test_a_few_rounds_of_kill_9_lose_nothing(tmp_path: Path) -> None:
    rounds(tmp_path / "memory.db", 3)


@pytest.mark.slow
def test_two_hundred_rounds_of_kill_9_lose_nothing(tmp_path: Path) -> None:
    rounds(tmp_path / "memory.db", int(os.environ.get("UPWELL_KILL_ROUNDS", "200")))


def test_what_one_process_writes_another_finds(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def look() -> bool:
        database = open_database(path, [OWNER], synchronous="FULL")
        store = SqliteStore(database)
        writer = start(WRITER, str(path), "other")
        try:
            for _ in range(100):
                if await store.search(Query(texts=("otherx0",)), Deadline.after(10)):
                    return True
                await asyncio.sleep(0.02)
        finally:
            kill(writer)
            await database.aclose()
        return False

    assert asyncio.run(look())
