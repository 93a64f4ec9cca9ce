"""A machine that is killed between any two steps of sharing loses no write and doubles none, over
the database and through a gateway."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.contracts.stores import open_team
from tests.postgres import APPLICATION, cluster
from tests.team_gateway import OWNER_TOKEN, gateway_in_thread
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Memory, Scope
from upwell.memory.postgres.shared import PostgresSharedMemories
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.base import SharedMemories
from upwell.memory.team.gateway import GatewayMemories
from upwell.memory.team.replication import Replication
from upwell.testing import ManualClock

MOST_STEPS = 60
CHANGED, GONE, NEW, THEIRS = "changed", "gone", "new", "theirs"


class Steps:
    """Passes calls on to `inner`, and calls `counter` before and after each of them: these are the
    steps at which a process can be killed."""

    def __init__(self, inner: object, counter: Callable[[], None]) -> None:
        self._inner = inner
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def counted(*args: object, **kwargs: object) -> object:
            self._counter()
            result = await method(*args, **kwargs)
            self._counter()
            return result

        return counted


def source_at(url: str) -> SharedMemories:
    """The team's store at an address, the database's or a gateway's."""
    if url.startswith("http:"):
        return GatewayMemories(url, lambda: OWNER_TOKEN)
    return PostgresSharedMemories(Postgres(url))


async def closed(shared: SharedMemories) -> None:
    await (shared.postgres if isinstance(shared, PostgresSharedMemories) else shared).aclose()  # type: ignore[attr-defined]


async def work(folder: Path, url: str, kill_at: int) -> None:
    """The day of a machine: it writes, sends and receives, and dies at a step."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    shared = source_at(url)
    counted_store: Any = Steps(store, step)
    stored = await store.get(CHANGED)
    assert stored is not None
    await counted_store.update(replace(stored, text="tide changed"))
    await counted_store.delete(GONE)
    await counted_store.add([Memory(text="tide new", id=NEW, namespace="team")])
    await counted_store.begin(await shared.identity())
    await Replication(counted_store, Steps(shared, step)).run()  # type: ignore[arg-type]
    await close()
    await closed(shared)
    print(taken)


async def prepared(folder: Path, url: str) -> None:
    """A machine that has shared two memories, beside a team that has changed since."""
    folder.mkdir()
    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    postgres = Postgres(url)
    shared = PostgresSharedMemories(postgres)
    await store.begin(await shared.identity())
    first = [
        Memory(text="tide one", id=CHANGED, namespace="team"),
        Memory(text="tide gone", id=GONE, namespace="team"),
    ]
    await store.add(first)
    await Replication(store, shared).run()
    await PostgresStore(postgres).add([Memory(text="tide theirs", id=THEIRS)])
    await close()
    await postgres.aclose()


async def recovered(folder: Path, database: str, url: str) -> tuple[dict[str, str], dict[str, str]]:
    """The memories of the team and of the machine, after its next start."""
    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    shared, postgres = source_at(url), Postgres(database)
    await store.begin(await shared.identity())
    await Replication(store, shared).run()
    await closed(shared)
    assert await store.outgoing() == []
    team = await PostgresStore(postgres).list(Scope())
    own = await store.list(Scope())
    await close()
    await postgres.aclose()
    return texts(team), texts(own)


def texts(memories: Sequence[Memory]) -> dict[str, str]:
    return {memory.id: memory.text for memory in memories}


def audited(url: str, id: str) -> dict[str, int]:
    """How many statements have stored this memory, and how many have removed it."""
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        rows = connection.execute(
            "SELECT action, count(*) FROM upwell.audit "
            "WHERE %s = ANY(string_to_array(subject, ' ')) GROUP BY action",
            [id],
        )
        return {action: int(count) for action, count in rows}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["database", "gateway"])
def test_a_kill_between_any_two_steps_doubles_and_loses_nothing(tmp_path: Path, way: str) -> None:
    survived = False
    for kill_at in range(1, MOST_STEPS):
        folder = tmp_path / str(kill_at)
        with ExitStack() as stack:
            database = url = cluster().emptied()
            if way == "gateway":
                opened = gateway_in_thread(tmp_path / f"g{kill_at}", database)
                url = stack.enter_context(opened).url
            survived = survives(folder, database, url, kill_at)
        if survived:
            break
    assert survived, "there are more steps than were tried"
    assert kill_at > 15


def survives(folder: Path, database: str, url: str, kill_at: int) -> bool:
    """Kill a machine at a step, and check what is left. Returns whether it ended before that."""
    asyncio.run(prepared(folder, database))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.faults.test_sharing_kill",
            str(folder),
            url,
            str(kill_at),
        ],
        capture_output=True,
        timeout=60,
    )
    survived = done.returncode == 0
    assert survived or done.returncode == -signal.SIGKILL, done.stderr.decode()
    team, own = asyncio.run(recovered(folder, database, url))
    assert team == own
    # A write that was not acknowledged by the machine itself may be missing, but not in part.
    assert team[THEIRS] == "tide theirs"
    assert team[CHANGED] == ("tide changed" if kill_at > 1 else "tide one")
    assert (GONE in team) == (kill_at <= 3)
    assert (NEW in team) == (kill_at > 5)
    if kill_at > 5:
        assert audited(database, NEW) in ({"store": 1}, {"store": 1, "share": 1})
        changed, gone = audited(database, CHANGED), audited(database, GONE)
        assert (changed["store"], changed["remove"]) == (2, 1)
        assert (gone["store"], gone["remove"]) == (1, 1)
    return survived


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
