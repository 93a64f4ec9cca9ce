"""kill -9 at any moment: no acknowledged memory is lost, none is doubled, the store opens.

`pytest -m slow` runs 200 rounds; UPWELL_KILL_ROUNDS=1000 is run by hand before a release.
"""

import asyncio
from pathlib import Path

import pytest

from tests.faults.killing import SLOW_ROUNDS, Scripts, Tally, kill, ready, rounds, start
from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.sqlite.store import OWNER, SqliteStore

WRITER = """
    import asyncio, sys
    from pathlib import Path
    from upwell.ground.sqlite.database import open_database
    from upwell.ground.types.memory import Memory
    from upwell.memory.sqlite.store import OWNER, SqliteStore

    async def main(path, name):
        store = SqliteStore(open_database(Path(path), [OWNER], synchronous="FULL"))
        i = 0
        while True:
            token = f"{name}x{i}"
            await store.add([Memory(text=f"token {token} kettle", id=token)])
            print(token if i else f"ready\\n{token}", flush=True)
            i += 1

    asyncio.run(main(*sys.argv[1:]))
"""
READER = """
    import asyncio, sys
    from pathlib import Path
    from upwell.ground.sqlite.database import open_database
    from upwell.ground.clock import Deadline
    from upwell.ground.types.memory import Query, Scope
    from upwell.memory.base import StoreRecall
    from upwell.memory.sqlite.store import OWNER, SqliteStore

    async def main(path):
        store = SqliteStore(open_database(Path(path), [OWNER], synchronous="FULL"))
        print("ready", flush=True)
        seen = 0
        while True:
            found = await StoreRecall(store).search(Query(texts=("kettle",)), Deadline.after(10))
            hits = found.hits
            there = len(await store.list(Scope(), limit=1_000_000))
            assert there >= seen, f"{there} memories after {seen}"
            assert len(hits) >= min(seen, 1), "nothing is found among them"
            seen = there

    asyncio.run(main(*sys.argv[1:]))
"""


async def stored(path: Path) -> list[str]:
    database = open_database(path, [OWNER], synchronous="FULL")
    store = SqliteStore(database)
    retained = [memory.id for memory in await store.list(Scope(), limit=1_000_000)]
    assert await database.read(lambda db: db.execute("PRAGMA quick_check").fetchall()) == [("ok",)]
    await database.write(
        lambda db: db.execute("INSERT INTO words(words, rank) VALUES ('integrity-check', 0)")
    )
    if retained:
        hits = (
            await StoreRecall(store).search(Query(texts=(retained[0],)), Deadline.after(10))
        ).hits
        assert hits
    await database.aclose()
    return retained


def killed(folder: Path, count: int) -> Tally:
    """Run the rounds, which check that nothing is lost, doubled or torn."""
    return rounds(
        folder, "memory.db", Scripts(WRITER, READER), lambda path: asyncio.run(stored(path)), count
    )


def test_a_few_rounds_of_kill_9_lose_nothing(tmp_path: Path) -> None:
    tally = killed(tmp_path, 3)
    (path,) = tally.files
    memories = asyncio.run(stored(path))
    assert len(memories) == tally.acknowledged + tally.unacknowledged


@pytest.mark.slow
def test_hundreds_of_rounds_of_kill_9_lose_nothing(tmp_path: Path) -> None:
    tally = killed(tmp_path, SLOW_ROUNDS)
    memories = sum(len(asyncio.run(stored(path))) for path in tally.files)
    assert memories == tally.acknowledged + tally.unacknowledged


def test_one_process_finds_memories_that_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"

    async def look() -> bool:
        database = open_database(path, [OWNER], synchronous="FULL")
        store = SqliteStore(database)
        writer = start(WRITER, str(path), "other")
        ready(writer)
        try:
            for _ in range(100):
                if (
                    await StoreRecall(store).search(Query(texts=("otherx0",)), Deadline.after(10))
                ).hits:
                    return True
                await asyncio.sleep(0.02)
        finally:
            kill(writer)
            await database.aclose()
        return False

    assert asyncio.run(look())
