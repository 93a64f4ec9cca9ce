"""A machine that is killed between any two steps of sharing loses no write and doubles none, over
the database and through a gateway."""

import asyncio
import inspect
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
from upwell.memory.team.exchange import TeamMemories, send
from upwell.memory.team.gateway import GatewayMemories
from upwell.testing import ManualClock

MOST_STEPS = 60
CHANGED, GONE, NEW, THEIRS = "changed", "gone", "new", "theirs"


class Steps:
    """Passes calls on to `inner`, and calls `counter` after each of them: these are the steps at
    which a process can be killed."""

    def __init__(self, inner: object, counter: Callable[[], None]) -> None:
        self._inner = inner
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if inspect.iscoroutinefunction(value):

            async def awaited(*args: object, **kwargs: object) -> object:
                result = await value(*args, **kwargs)
                self._counter()
                return result

            return awaited

        def called(*args: object, **kwargs: object) -> object:
            result = value(*args, **kwargs)
            self._counter()
            return result

        return called if callable(value) else value


def source_at(url: str) -> TeamMemories:
    """The team's store at an address, the database's or a gateway's."""
    if url.startswith("http:"):
        return GatewayMemories(url, lambda: OWNER_TOKEN)
    return PostgresSharedMemories(Postgres(url))


async def closed(shared: TeamMemories) -> None:
    await (shared.postgres if isinstance(shared, PostgresSharedMemories) else shared).aclose()  # type: ignore[attr-defined]


async def synced(store: TeamStore, shared: TeamMemories) -> None:
    await store.begin(await shared.identity())
    await send(store.queue, shared)
    await store.refresh(shared)


async def work(folder: Path, url: str, kill_at: int) -> None:
    """The day of a machine: it writes, sends and reads, and dies at a step. It says which writes it
    has acknowledged."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    shared = source_at(url)
    stored = await store.get(CHANGED)
    assert stored is not None
    counted: Any = store
    counted.queue = Steps(store.queue, step)
    counted._database = Steps(store._database, step)
    await store.update(replace(stored, text="tide changed"))
    print(CHANGED, flush=True)
    await store.delete(GONE)
    print(GONE, flush=True)
    await store.add([Memory(text="tide new", id=NEW, namespace="team")])
    print(NEW, flush=True)
    await synced(store, Steps(shared, step))  # type: ignore[arg-type]
    await close()
    await closed(shared)


async def prepared(folder: Path, url: str) -> None:
    """A machine that has shared two memories, beside a team that has changed since."""
    folder.mkdir()
    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    postgres = Postgres(url)
    shared = PostgresSharedMemories(postgres)
    first = [
        Memory(text="tide one", id=CHANGED, namespace="team"),
        Memory(text="tide gone", id=GONE, namespace="team"),
    ]
    await store.add(first)
    await synced(store, shared)
    await PostgresStore(postgres).add([Memory(text="tide theirs", id=THEIRS)])
    await close()
    await postgres.aclose()


async def recovered(folder: Path, database: str, url: str) -> tuple[dict[str, str], dict[str, str]]:
    """The memories of the team and of the machine, after its next start."""
    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    shared, postgres = source_at(url), Postgres(database)
    await synced(store, shared)
    await closed(shared)
    assert store.queue.read() == []
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
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_kill_between_any_two_steps_doubles_and_loses_nothing(
    tmp_path: Path, way: str, stride: int
) -> None:
    survived = False
    for kill_at in range(1, MOST_STEPS, stride):
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
    assert kill_at > 20


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
    acknowledged = done.stdout.decode().split()
    team, own = asyncio.run(recovered(folder, database, url))
    assert team == own
    # A write that was not acknowledged by the machine itself may be missing, but not in part.
    assert team[THEIRS] == "tide theirs"
    assert team[CHANGED] in {"tide changed", *(["tide one"] if CHANGED not in acknowledged else [])}
    assert GONE not in team or GONE not in acknowledged
    assert NEW in team or NEW not in acknowledged
    for id, most in ((CHANGED, {"store": 2, "remove": 1}), (GONE, {"store": 1, "remove": 1})):
        assert audited(database, id).items() >= (most if id in acknowledged else {}).items()
        assert all(audited(database, id).get(action, 0) <= count for action, count in most.items())
    assert audited(database, NEW).get("store", 0) == (NEW in team)
    return survived


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
