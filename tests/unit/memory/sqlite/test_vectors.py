"""Vectors in SQLite, beyond the contract: other processes, other models, and a comparison of signs
that finds nearly the same memories as one of every vector."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import Memory, Query
from upwell.memory.base import StoreRecall
from upwell.memory.lookups import SEQUENCE_BITS
from upwell.memory.meaning import QuestionVectors
from upwell.memory.ranking.signals import Likeness
from upwell.memory.sqlite import vectors
from upwell.memory.sqlite.nearness import Nearness
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.vectors import packed
from upwell.testing import FakeEmbedder, ManualClock

COUNT, DIM, QUESTIONS, BEST = 3_000, 96, 20, 10
SAME = {"automobile": "car", "vehicle": "car", "repaired": "fixed", "mended": "fixed"}
TEXTS = [
    "The automobile was repaired",
    *(f"Filler {n} about {word}" for n, word in enumerate("abcdefghijklmnop")),
]


def opened(folder: Path) -> Database:
    owners = [OWNER, vectors.OWNER]
    return open_database(folder / "memory.db", owners, synchronous="NORMAL")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    made = opened(tmp_path)
    yield made
    await made.aclose()


async def filled(database: Database, name: str, *memories: Memory) -> SqliteStore:
    model = FakeEmbedder(SAME, name=name)
    store = SqliteStore(database, questions=QuestionVectors(model))
    await store.add(memories)
    assert store.vectors
    await store.vectors.catch_up()
    return store


async def found(store: SqliteStore, text: str) -> list[str]:
    found = await StoreRecall(store).search(Query(texts=(text,)), Deadline.after(20.0))
    return [hit.memory.id for hit in found.hits]


async def test_vectors_of_another_process_are_found_and_not_those_of_another_model(
    database: Database, tmp_path: Path
) -> None:
    memories = [Memory(id=f"m{n}", text=text) for n, text in enumerate(TEXTS)]
    store = await filled(database, "one", *memories)
    assert (await found(store, "vehicle mended?"))[0] == "m0"
    second = opened(tmp_path)
    await filled(second, "one", Memory(id="late", text="The car was fixed again"))
    assert "late" in (await found(store, "vehicle mended?"))[:2]
    other = SqliteStore(second, questions=QuestionVectors(FakeEmbedder(SAME, name="other")))
    assert await found(other, "vehicle mended?") == []
    assert other.vectors
    assert await other.vectors.catch_up() == len(TEXTS) + 1
    assert await other.vectors.counts() == (len(TEXTS) + 1, len(TEXTS) + 1)
    assert (await found(other, "vehicle mended?"))[0] == "m0"
    await second.aclose()


async def test_a_failing_model_is_skipped_for_a_while() -> None:
    clock, model = ManualClock(), FakeEmbedder(error="down")
    questions = QuestionVectors(model, clock=clock)
    for n in range(9):
        assert await questions.vector(f"question {n}", Deadline.after(9.0)) is None
    assert len(model.asked) == 3
    clock.advance(61.0)
    model.error = ""
    assert await questions.vector("question", Deadline.after(9.0)) is not None


async def test_the_nearest_vectors_are_nearly_the_exact_ones(database: Database) -> None:
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(60, DIM))
    made = centres[rng.integers(60, size=COUNT)] + rng.normal(size=(COUNT, DIM))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    await SqliteStore(database).add([Memory(text=f"memory {n}") for n in range(COUNT)])
    due = await database.read(lambda db: vectors.due(db, 0, -1, COUNT))
    model = await database.write(lambda db: vectors.model_number(db, "random", DIM))
    stored = [packed(vector.tolist()) for vector in made]
    await database.write(lambda db: vectors.keep(db, model, due, stored))
    near, scope = Nearness(model, DIM), due[0].n >> SEQUENCE_BITS

    async def look(asked: list[float]) -> Likeness:
        result = await database.read(lambda db: near.look(db, asked, [scope], (), ()))
        assert result
        return result

    same = 0
    for number in random.Random(7).sample(range(COUNT), QUESTIONS):
        asked = made[number] + rng.normal(size=DIM) / 20
        asked /= np.linalg.norm(asked)
        best = np.argsort(-(made @ asked))[:BEST].tolist()
        likeness = await look(asked.tolist())
        same += sum(due[entry].n in likeness.cosines for entry in best)
        assert abs(likeness.cosines[due[best[0]].n] - float(made[best[0]] @ asked)) < 0.002
    assert same >= 0.97 * QUESTIONS * BEST
