"""A machine that copies anew, and a replica that forgets old deletions, are killed between any two
steps, and go on."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.contracts.stores import open_team
from tests.faults.test_sharing_kill import Steps, closed, recovered, source_at, texts
from tests.postgres import APPLICATION, cluster
from tests.team_gateway import gateway_in_thread
from upwell.ground.postgres.connection import Postgres, Transaction
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Scope
from upwell.memory.postgres import pruning as postgres_pruning
from upwell.memory.postgres import shared as postgres_shared
from upwell.memory.postgres.pruning import Pruning
from upwell.memory.postgres.shared import PostgresSharedMemories
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.replication import Replication
from upwell.testing import ManualClock

MOST_STEPS = 60
KEPT = {f"kept{n}" for n in range(4)}
GONE = {f"gone{n}" for n in range(3)}
WAITS = "waits"


def killed_at(step: int) -> Any:
    """A counter that kills the process at a step."""
    taken = 0

    def count() -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return count


async def copy(folder: str, url: str, kill_at: str) -> None:
    """A machine that was away brings its copy up to date, and dies at a step."""
    postgres_shared.PAGE = 2
    store, close = open_team(Path(folder), ManualClock())
    shared, step = source_at(url), killed_at(int(kill_at))
    counted: Any = Steps(store, step)
    await counted.begin(await shared.identity())
    await Replication(counted, Steps(shared, step)).run()  # type: ignore[arg-type]
    await close()
    await closed(shared)


async def prune(url: str, kill_at: str) -> None:
    """A replica forgets deletions one by one, and dies at a step."""
    postgres_pruning.BATCH = 1
    step, run = killed_at(int(kill_at)), Transaction.run

    async def counted(transaction: Transaction, *statements: Any) -> Any:
        step()
        rows = await run(transaction, *statements)
        step()
        return rows

    Transaction.run = counted  # type: ignore[method-assign]
    postgres = Postgres(url)
    await Pruning(postgres, DEFAULT_TENANT, 30).run()
    await postgres.aclose()


async def away(folder: Path, url: str) -> None:
    """Prepare a machine that has been away: it has an old copy, and a write that waits. Meanwhile
    the team deleted memories, 40 days ago."""
    folder.mkdir(exist_ok=True)
    store, close = open_team(folder, ManualClock())
    assert isinstance(store, TeamStore)
    postgres = Postgres(url)
    shared, remote = PostgresSharedMemories(postgres), PostgresStore(postgres)
    await remote.add([Memory(text=f"tide {id}", id=id) for id in sorted(KEPT | GONE)])
    await store.begin(await shared.identity())
    await Replication(store, shared).run()
    await store.add([Memory(text="tide waits", id=WAITS, namespace="team")])
    for id in GONE:
        await remote.delete(id)
    as_superuser(url, "UPDATE upwell.change SET at = at - 40 * 86400")
    await close()
    await postgres.aclose()


def as_superuser(url: str, statement: str) -> None:
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        connection.execute(statement.encode())


def ran(*arguments: str) -> bool:
    """Run a function of this file in a process. Returns whether it survived."""
    command: Sequence[str] = [sys.executable, "-m", "tests.faults.test_pruning_kill", *arguments]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode in (0, -9), done.stderr.decode()
    return done.returncode == 0


async def pruned(url: str) -> int:
    postgres = Postgres(url)
    try:
        return await Pruning(postgres, DEFAULT_TENANT, 30).run()
    finally:
        await postgres.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["database", "gateway"])
def test_a_machine_that_copies_anew_is_killed(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_shared, "PAGE", 2)
    for kill_at in range(1, MOST_STEPS):
        folder = tmp_path / str(kill_at)
        with ExitStack() as stack:
            database = url = cluster().emptied()
            if way == "gateway":
                opened = gateway_in_thread(tmp_path / f"g{kill_at}", database)
                url = stack.enter_context(opened).url
            asyncio.run(away(folder, database))
            assert asyncio.run(pruned(database)) == len(GONE)
            survived = ran("copy", str(folder), url, str(kill_at))
            team, own = asyncio.run(recovered(folder, database, url))
        assert set(team) == set(own) == KEPT | {WAITS}
        if survived:
            break
    assert survived, "there are more steps than were tried"
    assert kill_at > 15


@pytest.mark.slow
def test_a_replica_that_prunes_is_killed(tmp_path: Path) -> None:
    for kill_at in range(1, MOST_STEPS):
        url = cluster().emptied()
        folder = tmp_path / str(kill_at)
        asyncio.run(away(folder, url))
        survived = ran("prune", url, str(kill_at))
        # The machine returns before another replica prunes the rest.
        team, own = asyncio.run(recovered(folder, url, url))
        assert set(team) == set(own) == KEPT | {WAITS}
        # Two steps are one batch. The batch in which the replica died was not committed.
        committed = len(GONE) if survived else (kill_at - 1) // 2
        assert asyncio.run(pruned(url)) == len(GONE) - committed
        if survived:
            break
    assert survived
    assert kill_at > 2 * len(GONE)
    assert texts(asyncio.run(listed(url))) == {id: f"tide {id}" for id in KEPT | {WAITS}}


async def listed(url: str) -> Sequence[Memory]:
    store = PostgresStore(Postgres(url))
    try:
        return await store.list(Scope())
    finally:
        await store.aclose()


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    asyncio.run({"copy": copy, "prune": prune}[name](*arguments))
