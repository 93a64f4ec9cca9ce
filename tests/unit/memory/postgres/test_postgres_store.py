"""The store in PostgreSQL, beyond the contract: the wall between tenants, the same results as
SQLite, several processes, a lost database."""

import asyncio
import random
from pathlib import Path

import psycopg
import pytest
from tests.contracts.stores import open_postgres, open_sqlite
from tests.postgres import APPLICATION, Cluster, cluster

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError, StoreTooNew
from upwell.ground.postgres import connection as migrations
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.postgres.schema import _OWN, MIGRATIONS, TABLES_OF_A_TENANT, tenant_number
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Store, StoreRecall
from upwell.memory.library import Library
from upwell.memory.postgres.store import PostgresStore
from upwell.testing import ManualClock

WORDS = "kettle lid oven bread till order charge retry queue lock cache token branch merge".split()


@pytest.fixture
async def postgres():
    opened = Postgres(cluster().emptied())
    yield opened
    await opened.aclose()


async def found(store: Store, query: Query) -> dict[str, float]:
    hits = (await StoreRecall(store).search(query, Deadline.after(30))).hits
    return {hit.memory.id: hit.score for hit in hits}


async def test_the_database_itself_separates_tenants(postgres: Postgres) -> None:
    store = PostgresStore(postgres)
    await store.add([Memory(text="the kettle is red", id="a", triggers=("error:1",))])
    other = PostgresStore(postgres, tenant="other")
    await other.add([Memory(text="the kettle is blue", id="b", paths=("a.py",))])
    for table in TABLES_OF_A_TENANT:
        everything = Statement(f"SELECT DISTINCT tenant FROM upwell.{table}", {})
        (seen,) = await postgres.ask("other", everything)
        assert seen in ([], [(tenant_number("other"),)]), table
    (texts,) = await postgres.ask("other", Statement("SELECT text FROM upwell.memory", {}))
    assert texts == [("the kettle is blue",)]
    foreign = f"INSERT INTO upwell.term VALUES ({tenant_number('default')}, 'x', 0, 1)"
    with pytest.raises(StoreError, match="row-level security"):
        await postgres.ask("other", Statement(foreign, {}))


async def test_an_upgrade_removes_what_gateways_no_longer_share(monkeypatch) -> None:
    """Notes, tokens and originals of an earlier version do not stay behind where nobody looks."""
    url = cluster().database()
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "MIGRATIONS", MIGRATIONS[: MIGRATIONS.index(_OWN)])
        await migrations.migrate(url)
    tenant = tenant_number("default")
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        for kind in ("original", "received"):
            row = (tenant, kind, b"key", b"", 0, 1.0, 2.0)
            connection.execute("INSERT INTO upwell.entry VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
        connection.execute("INSERT INTO upwell.home_file VALUES (%s, 'stm.json', '')", [tenant])
    await migrations.migrate(url)
    with psycopg.connect(url.replace(APPLICATION, "postgres")) as connection:
        assert connection.execute("SELECT kind FROM upwell.entry").fetchall() == [("received",)]
        assert connection.execute("SELECT to_regclass('upwell.home_file')").fetchone() == (None,)


async def test_without_a_tenant_nothing_is_seen(postgres: Postgres) -> None:
    await PostgresStore(postgres).add([Memory(text="the kettle is red")])
    with psycopg.connect(postgres.url) as connection:
        role = connection.execute(
            "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = %s", [APPLICATION]
        ).fetchone()
        assert role == (False, False)
        assert connection.execute("SELECT count(*) FROM upwell.memory").fetchone() == (0,)


async def test_the_same_memories_give_the_same_hits_as_sqlite(tmp_path: Path) -> None:
    rng = random.Random(7)
    memories = [
        Memory(
            text=" ".join(rng.choices(WORDS, k=9)) + f" item{number % 20}",
            id=f"m{number}",
            paths=(f"src/{rng.choice(WORDS)}.py",),
            project=rng.choice((None, "/x")),
            supersedes=f"m{number - 1}" if number % 17 == 0 else None,
            created_at=float(number),
        )
        for number in range(160)
    ]
    clock = ManualClock()
    sqlite, close_sqlite = open_sqlite(tmp_path, clock)
    postgres, close_postgres = open_postgres(tmp_path, clock)
    for store in (sqlite, postgres):
        await Library(store, clock=clock).add_many(memories)
    in_sqlite = in_both = 0
    for size in (1, 2, 3, 5, 8) * 4:
        query = Query(
            texts=(" ".join(rng.sample(WORDS, k=size)) + f" item{size}",),
            paths=(f"src/{rng.choice(WORDS)}.py",),
            scope=Scope(project=rng.choice((None, "/x"))),
        )
        left, right = await found(sqlite, query), await found(postgres, query)
        both = left.keys() & right.keys()
        assert all(abs(left[id] - right[id]) <= 0.01 for id in both)
        in_sqlite += len(left)
        in_both += len(both)
    await close_sqlite()
    await close_postgres()
    assert in_sqlite >= 100
    assert in_both >= 0.95 * in_sqlite


@pytest.mark.parametrize("ratio", [0, 1_000])
async def test_pairs_of_common_words_are_found_by_either_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: int
) -> None:
    monkeypatch.setattr("upwell.memory.lookups.ROW_BUDGET", 15)
    monkeypatch.setattr("upwell.memory.postgres.lookup.MERGED_RATIO", ratio)
    rng = random.Random(3)
    memories = [
        Memory(
            text=" ".join(rng.choices(WORDS, k=3)) + f" item{number}",
            id=f"m{number}",
            namespace=rng.choice(("decisions", "notes")),
            project=rng.choice((None, "/x", "/y")),
            pinned=number % 19 == 0,
        )
        for number in range(200)
    ]
    clock = ManualClock()
    sqlite, close_sqlite = open_sqlite(tmp_path, clock)
    postgres, close_postgres = open_postgres(tmp_path, clock)
    counts = []
    try:
        for store in (sqlite, postgres):
            await store.add(memories)
        for project, namespaces in ((None, ()), ("/x", ()), ("/y", ("notes",))):
            text = " ".join(rng.sample(WORDS, k=5))
            query = Query(texts=(text,), scope=Scope(project=project, namespaces=namespaces))
            left, right = [
                await store.candidates(query, Deadline.after(30)) for store in (sqlite, postgres)
            ]
            names = [{each.id for each in pool.candidates.values()} for pool in (left, right)]
            assert names[0] == names[1]
            counts.append(len(names[0]))
    finally:
        await close_sqlite()
        await close_postgres()
    assert min(counts) >= 1


async def test_a_search_takes_two_round_trips(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres)
    await store.add([Memory(text="Ana: the kettle is red"), Memory(text="Bo: which kettle?")])
    trips = 0
    ask = postgres.ask

    async def counting(*args):
        nonlocal trips
        trips += 1
        return await ask(*args)

    monkeypatch.setattr(postgres, "ask", counting)
    query = Query(texts=("which kettle", "red lid"), triggers=("error:1",))
    assert len((await store.candidates(query, Deadline.after(30))).candidates) == 2
    assert trips == 3  # only the first search reads the counts that do not depend on the query
    assert len((await store.candidates(query, Deadline.after(30))).candidates) == 2
    assert trips == 5
    assert not await store.pinned(Scope())
    assert trips == 5
    await store.add([Memory(text="never boil twice", pinned=True)])
    assert [rule.text for rule in await store.pinned(Scope())] == ["never boil twice"]


async def test_processes_that_start_at_once_make_the_tables_once() -> None:
    url = cluster().database()
    opened = [Postgres(url) for _ in range(4)]
    try:
        await asyncio.gather(
            *(PostgresStore(each).add([Memory(text="the kettle is red")]) for each in opened)
        )
        assert len(await PostgresStore(opened[0]).list(Scope())) == 4
    finally:
        for each in opened:
            await each.aclose()


async def test_concurrent_writers_count_every_memory(postgres: Postgres) -> None:
    store = PostgresStore(postgres)
    await asyncio.gather(
        *(store.add([Memory(text=f"kettle number {n}", project="/x")]) for n in range(20))
    )
    counts = await store.word_counts(["kettle"])
    assert (counts.memories, counts.holding["kettle"]) == (20, 20)
    ids = [memory.id for memory in await store.list(Scope())]
    await asyncio.gather(*(store.delete(id) for id in ids[:10]))
    assert (await store.word_counts(["kettle"])).holding["kettle"] == 10


async def test_keys_longer_than_an_index_entry_are_found(postgres: Postgres) -> None:
    store, path = PostgresStore(postgres), f"src/{'deep/' * 700}oven.py"
    await store.add([Memory(text="bread", id="b", paths=(path,), triggers=("x" * 5_000,))])
    assert "b" in await found(store, Query(texts=(), paths=(path,)))
    assert "b" in await found(store, Query(texts=(), triggers=("x" * 5_000,)))
    assert await store.delete("b")
    assert await found(store, Query(texts=(), paths=(path,))) == {}


async def test_a_lost_database_fails_clearly_and_comes_back() -> None:
    own = Cluster()
    postgres = Postgres(own.database())
    store = PostgresStore(postgres)
    try:
        await store.add([Memory(text="the kettle is red", id="k")])
        own.stop()
        with pytest.raises(StoreError, match="PostgreSQL failed"):
            await store.get("k")
        assert not (await store.ping()).ok
        own.start()
        assert await is_found(store, "k")
    finally:
        await postgres.aclose()
        own.remove()


async def is_found(store: Store, memory_id: str) -> bool:
    """Whether a memory is there, once the database answers again."""
    for _ in range(100):
        try:
            return await store.get(memory_id) is not None
        except StoreError:
            await asyncio.sleep(0.1)
    return False


async def test_tables_of_a_later_version_are_left_alone() -> None:
    url = cluster().database()
    first = Postgres(url)
    await PostgresStore(first).ping()
    await first.aclose()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO upwell.migration VALUES (99)")
    later = Postgres(url)
    with pytest.raises(StoreTooNew):
        await PostgresStore(later).list(Scope())
    await later.aclose()
