"""What lies between us and PostgreSQL: a pooler, cut connections, a standby that takes
over."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.postgres import APPLICATION, Cluster, Pooler, cluster
from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.learn.postgres import PostgresRatings
from upwell.memory.base import StoreRecall
from upwell.memory.postgres.store import PostgresStore


@pytest.fixture
def pooled() -> Iterator[tuple[str, str]]:
    """The address of an empty database through a pooler, and its direct address."""
    direct = cluster().database()
    pooler = Pooler(cluster())
    yield pooler.url(direct), direct
    pooler.remove()


async def test_tenants_stay_apart_on_the_connections_that_a_pooler_shares(
    pooled: tuple[str, str],
) -> None:
    url, _ = pooled
    postgres = [Postgres(url) for _ in range(3)]

    async def work(number: int) -> None:
        tenant, own = f"tenant{number % 4}", postgres[number % 3]
        store = PostgresStore(own, tenant=tenant)
        for turn in range(8):
            await store.add([Memory(text=f"kettle {number}/{turn} of {tenant}")])
            found = await StoreRecall(store).search(Query(texts=("kettle",)), Deadline.after(30))
            assert {hit.memory.text.rpartition(" ")[2] for hit in found.hits} == {tenant}

    await asyncio.gather(*(work(number) for number in range(12)))
    for number in range(4):
        store = PostgresStore(postgres[0], tenant=f"tenant{number}")
        assert len(await store.list(Scope(), limit=100)) == 24
    for each in postgres:
        await each.aclose()


class Cutter:
    """A proxy before PostgreSQL that cuts each connection after some random number of bytes."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._rng = random.Random(seed)
        self.cuts = 0

    async def __aenter__(self) -> "Cutter":
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind = await asyncio.open_connection("127.0.0.1", self._port)
        left = [self._rng.randrange(1_000, 40_000)]
        await asyncio.gather(
            self._copy(reader, behind, left, (writer, behind)),
            self._copy(behind_reader, writer, left, (writer, behind)),
        )

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: list[int],
        both: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(4_096):
                passed = data[: max(0, left[0])]
                left[0] -= len(data)
                writer.write(passed)
                await writer.drain()
                if left[0] <= 0:
                    self.cuts += 1
                    break
        for each in both:
            each.transport.abort()


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_cut_connection_loses_no_acknowledged_memory(seed: int) -> None:
    direct = cluster().database()
    async with Cutter(cluster().port, seed) as cutter:
        url = f"postgresql://{APPLICATION}@127.0.0.1:{cutter.port}/{direct.rpartition('/')[2]}"
        acknowledged, refused = await _write_until(url, lambda: cutter.cuts >= 30)
    store = PostgresStore(Postgres(direct))
    present = {memory.id for memory in await store.list(Scope(), limit=10_000)}
    assert acknowledged <= present
    assert refused
    counts = await store.word_counts(["kettle"])
    assert counts.memories == counts.holding["kettle"] == len(present)
    await store.aclose()


async def test_a_killed_server_loses_no_acknowledged_memory() -> None:
    own = Cluster()
    url = own.database()
    rounds = 0

    async def disturb() -> None:
        nonlocal rounds
        for _ in range(3):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            rounds += 1

    disturbing = asyncio.create_task(disturb())
    acknowledged, refused = await _write_until(url, disturbing.done)
    await disturbing
    assert rounds == 3
    assert refused
    store = PostgresStore(Postgres(url))
    assert acknowledged <= {memory.id for memory in await store.list(Scope(), limit=100_000)}
    await store.aclose()
    own.remove()


async def test_a_standby_that_takes_over_has_every_acknowledged_memory() -> None:
    first = Cluster()
    direct = first.database()
    standby = Cluster(standby_of=first)
    first.set("synchronous_standby_names", "*")
    url = (
        f"postgresql://{APPLICATION}@127.0.0.1:{first.port},127.0.0.1:{standby.port}/"
        f"{direct.rpartition('/')[2]}?target_session_attrs=read-write"
    )
    over = asyncio.Event()

    async def take_over() -> None:
        await asyncio.sleep(1.5)
        await asyncio.to_thread(first.kill)
        await asyncio.to_thread(standby.promote)
        await asyncio.sleep(2.5)
        over.set()

    taking_over = asyncio.create_task(take_over())
    acknowledged, refused = await _write_until(url, over.is_set)
    await taking_over
    store = PostgresStore(Postgres(url))
    present = {memory.id for memory in await store.list(Scope(), limit=100_000)}
    assert acknowledged <= present
    assert refused
    latest = max(int(id) for id in acknowledged)
    assert latest > max(int(id) for id in refused)
    await store.aclose()
    for each in (first, standby):
        each.remove()


async def _write_until(url: str, is_over: Callable[[], bool]) -> tuple[set[str], set[str]]:
    """Store memories, one after the other. Returns the ids of those that were acknowledged, and of
    those that were refused."""
    store = PostgresStore(Postgres(url))
    acknowledged, refused, number = set(), set(), 0
    while not is_over():
        number += 1
        try:
            await store.add([Memory(text=f"kettle number {number}", id=str(number))])
            acknowledged.add(str(number))
        except StoreError:
            refused.add(str(number))
            await asyncio.sleep(0.02)
    with suppress(StoreError):
        await store.aclose()
    return acknowledged, refused


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    opened = Postgres(cluster().database())
    yield opened
    await opened.aclose()


async def test_the_database_separates_tenants(postgres: Postgres) -> None:
    for tenant in ("one", "two"):
        await PostgresStore(postgres, tenant=tenant).add([Memory(text="kettle", id=tenant)])
        await PostgresRatings(postgres, tenant=tenant).shift({"Read": 0.5}, 1.0)
    for table in ("memory", "threshold", "tenant"):
        (rows,) = await postgres.ask("one", Statement(f"SELECT tenant FROM upwell.{table}", {}))
        assert len(rows) == 1, table
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT count(*) FROM upwell.memory").fetchone() == (0,)
    foreign = "UPDATE upwell.memory SET text = 'x' RETURNING 1"
    (changed,) = await postgres.ask("three", Statement(foreign, {}))
    assert changed == []
