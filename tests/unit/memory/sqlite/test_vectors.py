"""Finding by meaning: vectors beside their memories, a model that may be slow or fail."""

import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.embed import Embedder
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import Hit, Memory, Query, Scope
from upwell.memory.base import StoreRecall
from upwell.memory.lookups import SEQUENCE_BITS
from upwell.memory.meaning import DueVector, QuestionVectors
from upwell.memory.sqlite import vectors
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.vectors import packed
from upwell.testing import FakeEmbedder, ManualClock

SAME = {"automobile": "car", "vehicle": "car", "repaired": "fixed", "mended": "fixed"}
TEXTS = [
    "The automobile was repaired on Tuesday",
    "Tulips bloom in the garden in May",
    "The release train leaves on Thursdays",
    "Ana prefers tea to coffee",
    "Invoices are numbered from one every year",
    "The staging cluster has three nodes",
    *(f"Filler number {n} about {word}" for n, word in enumerate("abcdefghijklmnop")),
]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = open_database(tmp_path / "memory.db", [OWNER, vectors.OWNER], synchronous="NORMAL")
    yield made
    await made.aclose()


@pytest.fixture
def model() -> FakeEmbedder:
    return FakeEmbedder(SAME)


@pytest.fixture
async def store(database: Database, model: FakeEmbedder) -> SqliteStore:
    return await filled(database, model)


async def filled(database: Database, model: Embedder) -> SqliteStore:
    store = SqliteStore(database, questions=QuestionVectors(model))
    await store.add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    assert store.vectors
    await store.vectors.catch_up()
    return store


async def found(store: SqliteStore, text: str, **scope: object) -> list[Hit]:
    query = Query(texts=(text,), scope=Scope(**scope))
    return list((await StoreRecall(store).search(query, Deadline.after(20.0))).hits)


def rows(database: Database) -> int:
    with sqlite3.connect(database.path) as db:
        return int(db.execute("SELECT count(*) FROM vector").fetchone()[0])


async def test_a_memory_without_shared_words_is_found_by_meaning(
    store: SqliteStore, database: Database
) -> None:
    (best, *_) = await found(store, "vehicle mended?")
    assert best.memory.id == "m0"
    assert best.signals["cosine"] > 0.3
    assert best.signals["meaning"] > 2
    assert await found(SqliteStore(database), "vehicle mended?") == []


async def test_every_memory_is_embedded_once(store: SqliteStore, model: FakeEmbedder) -> None:
    assert store.vectors
    assert await store.vectors.counts() == (len(TEXTS), len(TEXTS))
    asked = len(model.asked)
    assert await store.vectors.catch_up() == 0
    assert len(model.asked) == asked
    seen: list[tuple[int, int]] = []
    await store.add([Memory(id="new", text="A new thing")])
    assert await store.vectors.catch_up(lambda done, of: seen.append((done, of))) == 1
    assert seen == [(len(TEXTS) + 1, len(TEXTS) + 1)]


async def test_a_vector_is_deleted_with_its_memory(store: SqliteStore, database: Database) -> None:
    assert store.vectors
    await store.delete("m0")
    assert rows(database) == len(TEXTS) - 1
    assert "m0" not in [hit.memory.id for hit in await found(store, "vehicle mended?")]
    await store.update(Memory(id="m1", text="The vehicle is blue"))
    assert rows(database) == len(TEXTS) - 2
    await store.vectors.catch_up()
    assert (await found(store, "automobile"))[0].memory.id == "m1"


async def test_a_vector_of_an_earlier_text_is_not_kept(
    store: SqliteStore, database: Database
) -> None:
    await store.update(Memory(id="m1", text="Something else by now"))
    stale = DueVector(n=(1 << SEQUENCE_BITS) | 2, hash="of earlier", text="")
    await database.write(lambda db: vectors.keep(db, 1, [stale], [packed([1.0] * 128)]))
    assert rows(database) == len(TEXTS) - 1


async def test_scopes_and_namespaces_are_separate(
    store: SqliteStore, database: Database, model: FakeEmbedder
) -> None:
    assert store.vectors
    await store.add(
        [
            Memory(id="here", text="The car is red", project="/here"),
            Memory(id="there", text="The car is red", project="/there"),
            Memory(id="decided", text="The car is red", namespace="decisions"),
        ]
    )
    await store.vectors.catch_up()
    seen = {hit.memory.id for hit in await found(store, "vehicle", project="/here")}
    assert "here" in seen
    assert "there" not in seen
    only = await found(store, "vehicle", namespaces=("decisions",))
    assert [hit.memory.id for hit in only] == ["decided"]
    assert await found(store, "vehicle", namespaces=("nobody",)) == []
    other = SqliteStore(database, tenant="another", questions=QuestionVectors(model))
    assert await found(other, "vehicle") == []


async def test_vectors_of_another_model_are_not_compared(
    store: SqliteStore, database: Database
) -> None:
    other = SqliteStore(database, questions=QuestionVectors(FakeEmbedder(SAME, name="other")))
    assert await found(other, "vehicle mended?") == []
    assert other.vectors
    assert await other.vectors.catch_up() == len(TEXTS)
    assert (await found(other, "vehicle mended?"))[0].memory.id == "m0"
    assert rows(database) == len(TEXTS)


async def test_vectors_of_another_process_are_found(
    store: SqliteStore, tmp_path: Path, model: FakeEmbedder
) -> None:
    assert await found(store, "vehicle mended?")
    second = open_database(tmp_path / "memory.db", [OWNER, vectors.OWNER], synchronous="NORMAL")
    other = SqliteStore(second, questions=QuestionVectors(model))
    await other.add([Memory(id="late", text="The car was fixed again")])
    assert other.vectors
    await other.vectors.catch_up()
    await second.aclose()
    assert "late" in [hit.memory.id for hit in await found(store, "vehicle mended?")][:2]


async def test_with_a_failing_model_search_goes_by_words(
    database: Database, model: FakeEmbedder
) -> None:
    store = await filled(database, model)
    model.error = "no such model"
    assert (await found(store, "tulips in the garden"))[0].memory.id == "m1"
    assert store.vectors
    assert "no such model" in store.vectors.questions.failure
    model.error = ""
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"
    assert store.vectors.questions.failure == ""


async def test_a_failing_model_is_skipped_for_a_while() -> None:
    clock, model = ManualClock(), FakeEmbedder(error="down")
    questions = QuestionVectors(model, clock=clock)
    for n in range(9):
        assert await questions.vector(f"question {n}", Deadline.after(9.0)) is None
    assert len(model.asked) == 3
    clock.advance(61.0)
    model.error = ""
    assert await questions.vector("question", Deadline.after(9.0)) is not None


async def test_a_hanging_model_delays_nothing(database: Database) -> None:
    class Hanging(FakeEmbedder):
        slow = False
        released = threading.Event()

        def embed(self, texts):
            if self.slow:
                self.released.wait(60)
            return super().embed(texts)

    model = Hanging(SAME)
    store = await filled(database, model)
    model.slow = True
    began = time.monotonic()
    try:
        for text in ("tulips", "garden in May", "bloom", "release train", "invoices", "nodes"):
            assert await found(store, text)
        assert time.monotonic() - began < 30
    finally:
        model.released.set()


async def test_embedding_continues_where_it_failed(database: Database, model: FakeEmbedder) -> None:
    store = SqliteStore(database, questions=QuestionVectors(model))
    await store.add([Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)])
    model.error = "down"
    assert store.vectors
    assert await store.vectors.catch_up() == 0
    model.error = ""
    assert await store.vectors.catch_up() == len(TEXTS)


@pytest.mark.parametrize("made", [[0.1] * 7, [float("nan")] * 128, []])
async def test_vectors_that_cannot_be_compared_are_refused(
    database: Database, model: FakeEmbedder, made: list[float]
) -> None:
    class Odd(FakeEmbedder):
        def embed(self, texts):
            return [made for _ in texts] if made else []

    store = await filled(database, model)
    odd = SqliteStore(database, questions=QuestionVectors(Odd(SAME)))
    assert (await found(odd, "tulips in the garden"))[0].memory.id == "m1"
    await odd.add([Memory(id="new", text="The car is red")])
    assert odd.vectors
    assert await odd.vectors.catch_up() == 0
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"


async def test_any_exception_of_a_model_is_a_failure_of_the_model(database: Database) -> None:
    class Broken(FakeEmbedder):
        def embed(self, texts):
            raise RuntimeError("out of memory")

    store = SqliteStore(database, questions=QuestionVectors(Broken(SAME)))
    await store.add([Memory(id="m1", text="Tulips bloom in the garden in May")])
    assert store.vectors
    assert await store.vectors.catch_up() == 0
    assert (await found(store, "tulips in the garden"))[0].memory.id == "m1"
    assert "out of memory" in store.vectors.questions.failure


async def test_a_text_that_the_model_refuses_keeps_no_other_from_being_found(
    database: Database,
) -> None:
    class Picky(FakeEmbedder):
        def embed(self, texts):
            if any("Ana" in text for text in texts):
                raise RuntimeError("too long")
            return super().embed(texts)

    store = await filled(database, Picky(SAME))
    assert store.vectors
    assert await store.vectors.counts() == (len(TEXTS) - 1, len(TEXTS))
    assert (await found(store, "vehicle mended?"))[0].memory.id == "m0"
