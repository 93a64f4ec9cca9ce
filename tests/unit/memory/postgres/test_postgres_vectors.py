"""Comparing by meaning in PostgreSQL: vectors in a plain table, which also find memories that share
no word with the question."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from tests.postgres import cluster

from upwell.ground.clock import Deadline
from upwell.ground.llm import Embedder
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Hit, Memory, Query, Scope
from upwell.memory.base import Store, StoreRecall
from upwell.memory.meaning import Embeddings, QuestionVectors
from upwell.memory.postgres import vectors
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.sqlite.vectors import OWNER as VECTORS
from upwell.testing import FakeEmbedder

SAME = {"automobile": "car", "vehicle": "car", "repaired": "fixed", "mended": "fixed"}
TEXTS = [
    "The automobile was repaired in the garden",
    "Tulips bloom in the garden in May",
    "The release train leaves on Thursdays",
    "Ana prefers tea to coffee in the garden",
    *(f"Filler number {n} about {word}" for n, word in enumerate("abcdefghijklmnop")),
]
WORDS = "kettle lid oven bread till order charge retry queue lock cache token branch merge".split()


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    opened = Postgres(cluster().emptied())
    yield opened
    await opened.aclose()


async def filled(postgres: Postgres, model: Embedder, **options: str) -> PostgresStore:
    store = PostgresStore(postgres, questions=QuestionVectors(model), **options)
    await store.add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    assert store.vectors
    await store.vectors.catch_up()
    return store


async def found(store: Store, text: str, **scope: object) -> list[Hit]:
    query = Query(texts=(text,), scope=Scope(**scope))  # type: ignore[arg-type]
    return list((await StoreRecall(store).search(query, Deadline.after(20.0))).hits)


async def rows(postgres: Postgres, tenant: str = "default") -> int:
    (counted,) = await postgres.ask(tenant, Statement("SELECT count(*) FROM upwell.embedding", {}))
    return int(counted[0][0])


async def test_meaning_orders_the_memories_that_share_a_word(postgres: Postgres) -> None:
    store = await filled(postgres, FakeEmbedder(SAME))
    best, second, *_ = await found(store, "vehicle mended in the garden?")
    assert best.memory.id == "m0"
    assert best.signals["cosine"] > second.signals["cosine"]
    assert best.signals["meaning"] > 2
    by_words = {hit.memory.id: hit for hit in await found(PostgresStore(postgres), "in the garden")}
    assert "cosine" not in by_words["m0"].signals


async def test_among_too_many_memories_only_those_with_a_word_are_compared(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "MAX_SCANNED", len(TEXTS) - 1)
    store = await filled(postgres, FakeEmbedder(SAME))
    assert await found(store, "vehicle mended?") == []
    assert (await found(store, "vehicle mended in the garden?"))[0].memory.id == "m0"


async def test_a_replica_of_an_earlier_version_does_not_keep_memories_from_their_signs(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(vectors, "_FORM", "without")
        await filled(postgres, FakeEmbedder(SAME))
    await postgres.ask("default", Statement("UPDATE upwell.embedding SET code = NULL", {}))
    later = PostgresStore(postgres, questions=QuestionVectors(FakeEmbedder(SAME)))
    assert later.vectors
    assert await later.vectors.counts() == (0, len(TEXTS))
    assert await later.vectors.catch_up() == len(TEXTS)
    assert (await found(later, "vehicle mended?"))[0].memory.id == "m0"


async def test_the_hits_and_scores_are_those_of_sqlite(postgres: Postgres, tmp_path: Path) -> None:
    rng, model = random.Random(7), FakeEmbedder()
    memories = [
        Memory(
            id=f"m{n}",
            text=f"{' '.join(rng.choices(WORDS, k=9))} item{n % 20}",
            namespace="context" if n % 12 else "decisions",
        )
        for n in range(4 * vectors.COMPARED)
    ]
    database = open_database(tmp_path / "memory.db", [OWNER, VECTORS], synchronous="NORMAL")
    local = SqliteStore(database, questions=QuestionVectors(model))
    shared = PostgresStore(postgres, questions=QuestionVectors(model))
    for store in (local, shared):
        await store.add(memories)
        assert store.vectors
        assert await store.vectors.catch_up() == len(memories)
    in_sqlite = in_both = close = 0
    for size in (1, 2, 3, 5, 8) * 4:
        text = " ".join(rng.sample(WORDS, k=size)) + f" item{size}"
        among = {"namespaces": ("decisions",)} if size % 2 else {}
        left = {hit.memory.id: hit.score for hit in (await found(local, text, **among))[:10]}
        right = {hit.memory.id: hit.score for hit in (await found(shared, text, **among))[:10]}
        both = left.keys() & right.keys()
        close += sum(abs(left[id] - right[id]) <= 0.01 for id in both)
        in_sqlite += len(left)
        in_both += len(both)
    await database.aclose()
    assert in_sqlite >= 100
    assert in_both >= 0.95 * in_sqlite
    assert close >= 0.95 * in_both


async def test_each_tenant_sees_only_its_own_vectors(postgres: Postgres) -> None:
    await filled(postgres, FakeEmbedder(SAME))
    other = PostgresStore(postgres, tenant="other", questions=QuestionVectors(FakeEmbedder(SAME)))
    await other.add([Memory(id="other", text="The car is in the garden")])
    assert other.vectors
    assert await other.vectors.catch_up() == 1
    assert await rows(postgres, "other") == 1
    assert [hit.memory.id for hit in await found(other, "garden")] == ["other"]
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT count(*) FROM upwell.embedding").fetchone() == (0,)


async def test_two_models_do_not_overwrite_each_other(postgres: Postgres) -> None:
    store = await filled(postgres, FakeEmbedder(SAME))
    other = PostgresStore(postgres, questions=QuestionVectors(FakeEmbedder(SAME, name="other")))
    assert store.vectors
    assert other.vectors
    assert "cosine" not in (await found(other, "garden"))[0].signals
    assert await other.vectors.catch_up() == len(TEXTS)
    assert await store.vectors.counts() == await other.vectors.counts()
    age = f"UPDATE upwell.embedding_model SET used_at = used_at - {vectors.UNUSED_SECONDS + 1}"
    await postgres.ask("default", Statement(age, {}))
    await other.add([Memory(id="new", text="A new thing")])
    assert await other.vectors.catch_up() == 1
    assert await rows(postgres) == len(TEXTS) + 1


async def test_replicas_embed_each_memory_once(postgres: Postgres) -> None:
    models = [FakeEmbedder(SAME), FakeEmbedder(SAME)]
    replicas = [PostgresStore(postgres, questions=QuestionVectors(model)) for model in models]
    await replicas[0].add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    await asyncio.gather(*(each.vectors.catch_up() for each in replicas if each.vectors))
    await asyncio.gather(*(each.vectors.catch_up() for each in replicas if each.vectors))
    assert sorted(models[0].asked + models[1].asked) == sorted(TEXTS)


async def test_the_lease_of_a_lost_replica_ends(postgres: Postgres) -> None:
    store = await filled(postgres, FakeEmbedder(SAME))
    hold = "UPDATE upwell.embedding_model SET holder = 'lost', leased_until = {}"
    await postgres.ask("default", Statement(hold.format("1e12"), {}))
    await store.add([Memory(id="new", text="A new thing")])
    assert store.vectors
    assert await store.vectors.catch_up() == 0
    await postgres.ask("default", Statement(hold.format("1"), {}))
    assert await store.vectors.catch_up() == 1


async def test_the_health_says_what_is_not_searched(postgres: Postgres) -> None:
    store = await filled(postgres, FakeEmbedder(SAME))

    async def indexes():
        return [store.vectors]

    ping = await Embeddings(indexes).ping()
    assert ping
    assert f"{len(TEXTS)} of {len(TEXTS)} memories embedded by fake" in ping.detail
    assert "among more than 200,000 memories, searches compare only" in ping.detail
