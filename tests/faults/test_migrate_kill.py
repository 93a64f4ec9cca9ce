"""`upwell migrate` is killed at each statement that it sends, and then continues, while others
write to its source. A process of its own forks for each move, which is quick."""

import asyncio
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.postgres import APPLICATION, cluster
from upwell.app.store import open_memory_db
from upwell.app.team import SQLITE, Outcome, migrate
from upwell.config import load
from upwell.ground.postgres import connection as postgres_connection
from upwell.ground.postgres.connection import Postgres
from upwell.ground.sqlite import file as sqlite_file
from upwell.ground.types.cue import Rating
from upwell.ground.types.memory import Memory
from upwell.learn.feedback import Rated, Ratings
from upwell.learn.postgres import PostgresRatings
from upwell.memory import relocation
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.relocation import EVERYTHING
from upwell.memory.sqlite.store import SqliteStore

MOST_STEPS = 400
MEMORIES, TRASHED, RATINGS = 3, 1, 1
NOTED = "2026-11-20T08:31:35.610Z"
Home = tuple[SqliteStore | PostgresStore, Ratings | PostgresRatings, Callable[[], Awaitable[None]]]


class Kill:
    """Kills this process at the step with this number. A step is before a statement is sent to
    PostgreSQL, before SQLite runs one that writes, and before and after a journal entry."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._taken = 0
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            self._taken += 1
            if self._taken == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        send, connect, append = (
            postgres_connection.send,
            sqlite_file.connect,
            relocation.MoveJournal.append,
        )

        async def counted_send(*args: Any) -> Any:
            self.step()
            return await send(*args)

        def counted_connect(*args: Any) -> sqlite3.Connection:
            opened = connect(*args)
            opened.set_trace_callback(self._traced)
            return opened

        def counted_append(*args: Any) -> None:
            self.step()
            append(*args)
            self.step()

        postgres_connection.send = counted_send
        sqlite_file.connect = counted_connect
        relocation.MoveJournal.append = counted_append  # type: ignore[method-assign]

    def _traced(self, statement: str) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT")):
            self.step()


def moving(url: str, direction: str) -> Outcome:
    """Move everything of this home in one direction, in small batches."""
    relocation.BATCH = 2
    to, origin = (url, "") if direction == "there" else (SQLITE, url)
    notes = direction == "there"
    return asyncio.run(
        migrate(to, origin, apply=True, notes=notes, progress=lambda _done, _total: None)
    )


def forked(url: str, direction: str, kill_at: int) -> int:
    """Start a move in a process that dies at step `kill_at`, 0 for none. Returns the process id."""
    # A fork beside another thread may hang.
    end = time.monotonic() + 20
    while threading.active_count() > 1:
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.01)
    child = os.fork()
    if child:
        return child
    try:
        Kill(kill_at).install()
        moving(url, direction)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(3)


def ended(child: int) -> bool:
    """Wait for a move. Returns whether it survived."""
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), code
    return code == 0


def opened(url: str, place: str) -> Home:
    """The memories and ratings of the home, or of the database."""
    if place == "home":
        database = open_memory_db(load().home.prepare())
        return SqliteStore(database), Ratings(database), database.aclose
    postgres = Postgres(url)
    return PostgresStore(postgres), PostgresRatings(postgres), postgres.aclose


def tide(name: str) -> Memory:
    return Memory(text=f"The tide {name} turns at noon", id=name, tags=("sea",), triggers=(name,))


async def fill(url: str, place: str) -> None:
    store, ratings, close = opened(url, place)
    await store.add([tide(f"m{n}") for n in range(MEMORIES + TRASHED)])
    for n in range(TRASHED):
        await store.delete(f"m{MEMORIES + n}")
    rated = [
        Rated(
            surfacing=f"s{n}",
            memory="m0",
            rating=Rating.HELPFUL,
            at=1.0,
            door="tool",
            tool="Read",
            score=0.5,
        )
        for n in range(RATINGS)
    ]
    await ratings.add(rated)
    await ratings.shift({"Read": 0.125}, 2.0)
    await close()


async def serve(url: str, place: str, name: str) -> None:
    """What a gateway over the source does meanwhile: it adds, changes, deletes and searches."""
    store, _, close = opened(url, place)
    for number in range(2):
        await store.add([tide(f"{name}{number}")])
        changed = await store.get("m0")
        assert changed is not None
        await store.update(replace(changed, text=f"The tide of {name}{number} turns"))
    await store.delete(f"{name}1")
    await close()


async def contents(url: str, place: str) -> dict[str, Any]:
    """Everything that a move copies, as ids, hashes and counts."""
    store, ratings, close = opened(url, place)
    ids = sorted(await store.stamps(limit=EVERYTHING))
    memories = sorted(await store.get_many(ids), key=lambda memory: memory.id)
    discarded = sorted(await store.discarded(), key=lambda item: item.memory.id)
    words = await store.word_counts(["tide", "turns", "noon"])
    found = {
        "memories": [memory.id for memory in memories if not memory.id.startswith("note-")],
        "digest": digest([memory for memory in memories if not memory.id.startswith("note-")]),
        "trash": [(item.memory.id, item.deleted_at) for item in discarded],
        "trash digest": digest([item.memory for item in discarded]),
        "words": words.memories - sum(memory.id.startswith("note-") for memory in memories),
        "tides": words.holding["tide"],
        "ratings": sorted((each.surfacing, each.memory) for each in await ratings.valid()),
        "shifts": await ratings.shifts(),
    }
    found["notes"] = sum(memory.id.startswith("note-") for memory in memories)
    await close()
    return found


def digest(memories: Sequence[Memory]) -> str:
    fields = [relocation._fields(memory) for memory in memories]
    return hashlib.sha256(b"\n".join(fields)).hexdigest()


def reset(url: str, home: Path, direction: str) -> None:
    with psycopg.connect(url.replace(APPLICATION, "postgres"), autocommit=True) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'upwell' "
            "AND tablename <> 'migration'"
        ).fetchall()
        names = ", ".join(f"upwell.{name}" for (name,) in tables)
        connection.execute(f"TRUNCATE {names}".encode())
    os.environ["UPWELL_HOME"] = str(home)
    asyncio.run(fill(url, "home" if direction == "there" else "database"))
    if direction == "there":
        (home / "stm.json").write_text(
            json.dumps(
                [
                    {
                        "id": "n1",
                        "content": "the harbour master is Ada",
                        "created_at": NOTED,
                        "viewed_at": NOTED,
                    }
                ]
            )
        )


def drill(folder: Path, url: str, direction: str, stride: int) -> int:
    """Kill a move at every `stride`th step. Returns about how many steps there are."""
    source, target = ("home", "database") if direction == "there" else ("database", "home")
    asyncio.run(created(url))
    for kill_at in range(1, MOST_STEPS, stride):
        home = folder / str(kill_at)
        reset(url, home, direction)
        survived = ended(forked(url, direction, kill_at))
        asyncio.run(serve(url, source, "between"))
        again = forked(url, direction, 0)
        asyncio.run(serve(url, source, "beside"))
        assert ended(again)
        last = moving(url, direction)
        ours, theirs = asyncio.run(contents(url, source)), asyncio.run(contents(url, target))
        notes = theirs.pop("notes"), ours.pop("notes")
        assert ours == theirs, kill_at
        assert notes == ((1, 0) if direction == "there" else (0, 0)), kill_at
        verified = last.verified
        assert verified is not None
        assert (verified.equal, verified.different) == (len(ours["memories"]), ()), kill_at
        assert (verified.changed_there, verified.deleted_there) == (0, 0), kill_at
        assert len(ours["memories"]) == ours["words"] == MEMORIES + 2
        assert len(ours["trash"]) == TRASHED + 2
        assert len(ours["ratings"]) == RATINGS
        if survived:
            return kill_at
    raise AssertionError("there are more steps than were tried")


async def created(url: str) -> None:
    postgres = Postgres(url)
    await postgres.ask("default")
    await postgres.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["there", "back"])
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_move_is_killed_at_every_statement(tmp_path: Path, direction: str, stride: int) -> None:
    command = [sys.executable, "-m", "tests.faults.test_migrate_kill"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, str(tmp_path), cluster().database(), direction, str(stride)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_500,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert int(done.stdout) > 30


if __name__ == "__main__":
    print(drill(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
