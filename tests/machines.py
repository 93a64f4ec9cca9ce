"""Developers' machines with snapshots of a team's memories, over a real PostgreSQL: directly, and
through a gateway."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from tests.contracts.stores import open_team
from tests.postgres import APPLICATION, cluster
from tests.team_gateway import OWNER_TOKEN, gateway
from upwell.ground.clock import Deadline
from upwell.ground.postgres.connection import Postgres
from upwell.ground.types.memory import Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.postgres.shared import PostgresSharedMemories
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.exchange import Outgoing, TeamMemories, send
from upwell.memory.team.gateway import GatewayMemories
from upwell.testing import ManualClock

SHOP = "github.com/acme/shop"


class Machine:
    """A developer's store, its clone of the repository, and the team's store."""

    def __init__(self, store: TeamStore, project: str, shared: TeamMemories) -> None:
        self.store = store
        self.project = project
        self.shared = shared

    async def sync(self) -> bool:
        """Send and read, as the daemon does. Returns whether there was a new snapshot."""
        await self.store.begin(await self.shared.identity())
        await send(self.store.queue, self.shared)
        return await self.store.refresh(self.shared)

    def waiting(self) -> list[Outgoing]:
        return [entry.write for entry in self.store.queue.read()]

    async def texts(self) -> set[str]:
        """The texts that the clone's project sees: a search finds the same ones that a list has."""
        scope = Scope(project=self.project)
        listed = {memory.text for memory in await self.store.list(scope)}
        hits = await StoreRecall(self.store).search(
            Query(texts=("tide",), scope=scope, limit=100), Deadline.after(30)
        )
        assert {hit.memory.text for hit in hits.hits} == listed
        return listed


def as_superuser(url: str) -> psycopg.Connection:
    """A connection that row-level security does not restrict."""
    return psycopg.connect(url.replace(APPLICATION, "postgres"), autocommit=True)


def clone(folder: Path) -> str:
    folder.mkdir()
    remote = "git@github.com:acme/shop.git"
    for args in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", *args], cwd=folder, check=True)
    return str(folder)


@pytest.fixture
def url() -> str:
    return cluster().emptied()


@pytest.fixture(params=["database", "gateway"])
async def shared(
    request: pytest.FixtureRequest, tmp_path: Path, url: str
) -> AsyncIterator[TeamMemories]:
    """The team's store, as machines reach it."""
    if request.param == "database":
        postgres = Postgres(url)
        yield PostgresSharedMemories(postgres)
        await postgres.aclose()
        return
    async with gateway(tmp_path, url) as opened:
        source = GatewayMemories(opened.url, lambda: OWNER_TOKEN)
        yield source
        await source.aclose()


@pytest.fixture
async def team(
    tmp_path: Path, url: str, shared: TeamMemories
) -> AsyncIterator[tuple[Machine, Machine, PostgresStore]]:
    postgres, clock = Postgres(url), ManualClock()
    machines, closing = [], []
    for name in ("ada", "ben"):
        project = clone(tmp_path / name)
        store, close = open_team(tmp_path / name, clock)
        assert isinstance(store, TeamStore)
        machines.append(Machine(store, project, shared))
        closing.append(close)
    yield machines[0], machines[1], PostgresStore(postgres, clock=clock)
    for close in closing:
        await close()
    await postgres.aclose()
