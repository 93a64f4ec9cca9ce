"""Sign bits find nearly the same memories as a comparison of every vector."""

import random
from pathlib import Path

import numpy as np

from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Memory
from upwell.memory.lookups import SEQUENCE_BITS
from upwell.memory.ranking.signals import Likeness
from upwell.memory.sqlite import vectors
from upwell.memory.sqlite.nearness import Nearness
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.vectors import packed

COUNT, DIM, QUESTIONS, BEST = 3_000, 96, 20, 10


async def test_the_nearest_vectors_are_nearly_the_exact_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(60, DIM))
    made = centres[rng.integers(60, size=COUNT)] + rng.normal(size=(COUNT, DIM))
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    owners = [OWNER, vectors.OWNER]
    database = open_database(tmp_path / "memory.db", owners, synchronous="NORMAL")
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
    await database.aclose()
    assert same >= 0.97 * QUESTIONS * BEST
