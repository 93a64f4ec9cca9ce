"""Every `Store`, opened empty. Add a new store here, and to `PLACES` of test_recall_contract.py."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.postgres import cluster

from upwell.ground.postgres.connection import Postgres
from upwell.ground.sqlite.database import open_database
from upwell.memory.base import Store
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite import team_store
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.team.exchange import WriteQueue
from upwell.testing import ManualClock

Opened = tuple[Store, Callable[[], Awaitable[None]]]


def open_sqlite(folder: Path, clock: ManualClock) -> Opened:
    database = open_database(folder / "memory.db", [OWNER], synchronous="FULL")
    return SqliteStore(database, clock=clock), database.aclose


def open_postgres(folder: Path, clock: ManualClock) -> Opened:
    store = PostgresStore(Postgres(cluster().emptied()), clock=clock)
    return store, store.aclose


def open_team(folder: Path, clock: ManualClock) -> Opened:
    queue = WriteQueue(folder / "team-queue.jsonl")
    owners = [OWNER, team_store.snapshot_owner(queue)]
    database = open_database(folder / "memory.db", owners, synchronous="FULL")
    return TeamStore(database, queue, clock=clock), database.aclose


TenantStore = SqliteStore | PostgresStore
Tenants = tuple[Callable[[str], TenantStore], Callable[[], Awaitable[None]]]


def tenants_of_sqlite(folder: Path, clock: ManualClock) -> Tenants:
    database = open_database(folder / "memory.db", [OWNER], synchronous="FULL")
    return lambda tenant: SqliteStore(database, tenant=tenant, clock=clock), database.aclose


def tenants_of_postgres(folder: Path, clock: ManualClock) -> Tenants:
    database = Postgres(cluster().emptied())
    return lambda tenant: PostgresStore(database, tenant=tenant, clock=clock), database.aclose


STORES = {"sqlite": open_sqlite, "postgres": open_postgres, "team": open_team}
TENANTS = {"sqlite": tenants_of_sqlite, "postgres": tenants_of_postgres}
"""The stores of several tenants over one database."""
