"""The shipped retrieval set (`benchmarks/shipped.py`): recall and silence do not get worse."""

from collections import defaultdict
from pathlib import Path

import pytest
from benchmarks.shipped import KINDS, load

from upwell.ground.clock import Deadline
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.memory import Hit
from upwell.memory.base import StoreRecall
from upwell.memory.library import Library
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.surface.options import SurfaceOptions

FLOORS = {"exact": 0.98, "paraphrased": 0.95, "path": 0.98, "identifier": 0.98, "spanish": 0.95}
"""The least recall allowed among the first ten hits. Measured: 1.00 for each kind."""


@pytest.fixture
async def found(tmp_path: Path) -> dict[str, list[tuple[frozenset[str], list[Hit]]]]:
    """By kind of question: for each one, the ids of its answers, and its hits."""
    memories, questions = load()
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    library = Library(SqliteStore(database))
    await library.add_many(memories)
    by_kind = defaultdict(list)
    for question in questions:
        hits = (await StoreRecall(library.store).search(question.query(), Deadline.after(60))).hits
        by_kind[question.kind].append((question.gold, hits))
    await database.aclose()
    return by_kind


def recall(asked: list[tuple[frozenset[str], list[Hit]]], most: int) -> float:
    shares = [
        len(gold & {hit.memory.id for hit in hits[:most]}) / len(gold) for gold, hits in asked
    ]
    return sum(shares) / len(shares)


async def test_the_set_is_found_and_nothing_surfaces_where_nothing_answers(found) -> None:
    assert set(found) == set(KINDS)
    assert {
        kind: recall(found[kind], 10) >= floor for kind, floor in FLOORS.items()
    } == dict.fromkeys(FLOORS, True)
    with_words = [entry for kind in FLOORS for entry in found[kind]]
    assert recall(with_words, 3) >= 0.95
    assert recall(with_words, 1) >= 0.82
    threshold = SurfaceOptions().min_score
    loud = [hits[0].memory.text for _, hits in found["none"] if hits and hits[0].score >= threshold]
    assert len(loud) <= 1, loud
    reply = [hits[0].score >= threshold for _, hits in with_words if hits]
    assert sum(reply) / len(with_words) >= 0.85
