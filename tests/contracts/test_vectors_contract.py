"""Every store with an embedder: vectors stand beside their memories, and a model may be slow or
fail."""

import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from tests.postgres import cluster

from upwell.ground.clock import Deadline
from upwell.ground.llm import Embedder
from upwell.ground.postgres.connection import Postgres, Statement
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import Hit, Memory, Query, Scope
from upwell.memory.base import Store, StoreRecall
from upwell.memory.meaning import DueVector, QuestionVectors, VectorIndex
from upwell.memory.postgres.store import PostgresStore
from upwell.memory.sqlite import vectors
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.vectors import packed
from upwell.testing import FakeEmbedder

SAME = {"automobile": "car", "vehicle": "car", "repaired": "fixed", "mended": "fixed"}
TEXTS = [
    "The automobile was repaired on Tuesday",
    "Tulips bloom in the garden in May",
    "The release train leaves on Thursdays",
    "Ana prefers tea to coffee in the garden",
    *(f"Filler number {n} about {word}" for n, word in enumerate("abcdefghijklmnop")),
]


class Vectors(Protocol):
    async def rows(self) -> int: ...
    def opened(self, model: Embedder | None, tenant: str = "default") -> Store: ...


class OfSqlite:
    def __init__(self, database: Database) -> None:
        self._database = database

    def opened(self, model: Embedder | None, tenant: str = "default") -> Store:
        questions = QuestionVectors(model) if model else None
        return SqliteStore(self._database, tenant=tenant, questions=questions)

    async def rows(self) -> int:
        with sqlite3.connect(self._database.path) as db:
            return int(db.execute("SELECT count(*) FROM vector").fetchone()[0])


class OfPostgres:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    def opened(self, model: Embedder | None, tenant: str = "default") -> Store:
        questions = QuestionVectors(model) if model else None
        return PostgresStore(self._postgres, tenant=tenant, questions=questions)

    async def rows(self) -> int:
        count = Statement("SELECT count(*) FROM upwell.embedding", {})
        (counted,) = await self._postgres.ask("default", count)
        return int(counted[0][0])


@pytest.fixture(params=["sqlite", "postgres"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Vectors]:
    if request.param == "sqlite":
        owners = [OWNER, vectors.OWNER]
        database = open_database(tmp_path / "memory.db", owners, synchronous="NORMAL")
        yield OfSqlite(database)
        await database.aclose()
    else:
        postgres = Postgres(cluster().emptied())
        yield OfPostgres(postgres)
        await postgres.aclose()


@pytest.fixture
def model() -> FakeEmbedder:
    return FakeEmbedder(SAME)


@pytest.fixture
async def store(place: Vectors, model: FakeEmbedder) -> Store:
    return await filled(place, model)


async def filled(place: Vectors, model: Embedder) -> Store:
    store = place.opened(model)
    await store.add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    await index(store).catch_up()
    return store


def index(store: Store) -> VectorIndex:
    assert store.vectors
    return store.vectors


async def found(store: Store, text: str, **scope: object) -> list[Hit]:
    query = Query(texts=(text,), scope=Scope(**scope))  # type: ignore[arg-type]
    return list((await StoreRecall(store).search(query, Deadline.after(20.0))).hits)


async def test_a_memory_without_shared_words_is_found_by_meaning(
    store: Store, place: Vectors
) -> None:
    best, *others = await found(store, "vehicle mended?")
    assert (best.memory.id, best.matched) == ("m0", ())
    assert best.signals["cosine"] > 0.3
    assert best.signals["meaning"] > 2
    assert all(hit.score < best.score for hit in others)
    assert await found(place.opened(None), "vehicle mended?") == []


async def test_every_memory_is_embedded_once(store: Store, model: FakeEmbedder) -> None:
    assert await index(store).counts() == (len(TEXTS), len(TEXTS))
    asked = len(model.asked)
    assert await index(store).catch_up() == 0
    assert len(model.asked) == asked
    seen: list[tuple[int, int]] = []
    await store.add([Memory(id="new", text="A new thing")])
    assert await index(store).catch_up(lambda done, of: seen.append((done, of))) == 1
    assert seen == [(len(TEXTS) + 1, len(TEXTS) + 1)]


async def test_a_vector_goes_with_its_memory(store: Store, place: Vectors) -> None:
    await store.delete("m0")
    assert await place.rows() == len(TEXTS) - 1
    assert "m0" not in [hit.memory.id for hit in await found(store, "vehicle mended?")]
    await store.update(Memory(id="m1", text="The vehicle is blue"))
    assert await place.rows() == len(TEXTS) - 2
    assert await index(store).catch_up() == 1
    assert (await found(store, "automobile"))[0].memory.id == "m1"


async def test_a_vector_of_an_earlier_text_is_not_stored(
    place: Vectors, model: FakeEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = place.opened(model)
    await store.add([Memory(id="m", text="The car is red")])

    async def changing(
        questions: QuestionVectors, batch: list[DueVector]
    ) -> dict[DueVector, bytes]:
        if batch[0].text != "The car is red":
            return {}
        await store.update(Memory(id="m", text="The car is blue"))
        return {due: packed([1.0] * FakeEmbedder.dim) for due in batch}

    monkeypatch.setattr("upwell.memory.meaning.packed_vectors", changing)
    await index(store).catch_up()
    assert await place.rows() == 0
    monkeypatch.undo()
    await store.add([Memory(id="new", text="A new thing")])
    assert await index(store).catch_up() == 2


async def test_scopes_namespaces_and_tenants_are_separate(
    store: Store, place: Vectors, model: FakeEmbedder
) -> None:
    text = "The car is red"
    await store.add(
        [
            Memory(id="here", text=text, project="/here"),
            Memory(id="there", text=text, project="/there"),
            Memory(id="decided", text=text, namespace="decisions"),
        ]
    )
    await index(store).catch_up()
    seen = {hit.memory.id for hit in await found(store, "vehicle", project="/here")}
    assert "here" in seen
    assert "there" not in seen
    only = await found(store, "vehicle", namespaces=("decisions",))
    assert [hit.memory.id for hit in only] == ["decided"]
    assert await found(store, "vehicle", namespaces=("nobody",)) == []
    assert await found(place.opened(model, "another"), "vehicle") == []


async def test_with_a_failing_model_search_goes_by_words(store: Store, model: FakeEmbedder) -> None:
    model.error = "no such model"
    assert (await found(store, "tulips in the garden"))[0].memory.id == "m1"
    assert "no such model" in index(store).questions.failure
    model.error = ""
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"
    assert index(store).questions.failure == ""


async def test_a_hanging_model_delays_no_search(place: Vectors) -> None:
    class Hanging(FakeEmbedder):
        slow = False
        released = threading.Event()

        def embed(self, texts):
            if self.slow:
                self.released.wait(60)
            return super().embed(texts)

    model = Hanging(SAME)
    store = await filled(place, model)
    model.slow = True
    began = time.monotonic()
    try:
        for text in ("tulips", "garden in May", "bloom", "release train"):
            assert await found(store, text)
        assert time.monotonic() - began < 20
    finally:
        model.released.set()


async def test_embedding_continues_where_it_failed(place: Vectors, model: FakeEmbedder) -> None:
    store = place.opened(model)
    await store.add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    model.error = "down"
    assert await index(store).catch_up() == 0
    model.error = ""
    assert await index(store).catch_up() == len(TEXTS)


@pytest.mark.parametrize("made", [[0.1] * 7, [float("nan")] * 128, []])
async def test_vectors_that_cannot_be_compared_are_refused(
    store: Store, place: Vectors, made: list[float]
) -> None:
    class Odd(FakeEmbedder):
        def embed(self, texts):
            return [made for _ in texts] if made else []

    odd = place.opened(Odd(SAME))
    assert (await found(odd, "tulips in the garden"))[0].memory.id == "m1"
    await odd.add([Memory(id="new", text="The car is red")])
    assert await index(odd).catch_up() == 0
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"


async def test_a_text_that_the_model_refuses_keeps_no_other_from_being_found(
    place: Vectors,
) -> None:
    class Picky(FakeEmbedder):
        def embed(self, texts):
            if any("Ana" in text for text in texts):
                raise RuntimeError("too long")
            return super().embed(texts)

    store = await filled(place, Picky(SAME))
    assert await index(store).counts() == (len(TEXTS) - 1, len(TEXTS))
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"
    assert "too long" not in index(store).questions.failure
