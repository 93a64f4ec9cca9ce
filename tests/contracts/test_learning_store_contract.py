"""The contract of every `LearningStore`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.postgres import cluster

from upwell.ground.postgres.connection import Postgres
from upwell.ground.sqlite.database import open_database
from upwell.ground.types.cue import Rating
from upwell.learn.feedback import (
    OWNER,
    RETENTION_SECONDS,
    LearningStore,
    Rated,
    Ratings,
    copy_ratings,
)
from upwell.learn.postgres import PostgresRatings


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request, tmp_path: Path) -> AsyncIterator[LearningStore]:
    if request.param == "postgres":
        postgres = Postgres(cluster().emptied())
        yield PostgresRatings(postgres)
        await postgres.aclose()
        return
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    yield Ratings(database)
    await database.aclose()


def rated(memory: str, rating: Rating, *, at: float = 1.0, tool: str = "Read") -> Rated:
    return Rated(
        surfacing=f"s{at}",
        memory=memory,
        rating=rating,
        at=at,
        door="tool",
        tool=tool,
        score=0.7,
        signals={"words": 0.5},
    )


async def test_ratings_come_back_by_tool_oldest_first(store: LearningStore) -> None:
    await store.add([rated("b", Rating.NOT_RELEVANT, at=3.0), rated("a", Rating.HELPFUL, at=2.0)])
    await store.add([rated("a", Rating.HELPFUL, at=4.0, tool="Grep")])
    by_tool = await store.by_tool(2.5)
    assert {tool: [sample.at for sample in samples] for tool, samples in by_tool.items()} == {
        "Read": [3.0],
        "Grep": [4.0],
    }
    (sample,) = by_tool["Read"]
    assert (sample.memory, sample.evidence, sample.score) == ("b", Rating.NOT_RELEVANT, 0.7)
    assert [sample.at for sample in (await store.by_tool(0.0))["Read"]] == [2.0, 3.0]


async def test_a_later_rating_of_a_surfacing_replaces_the_earlier(store: LearningStore) -> None:
    await store.add([rated("a", Rating.HELPFUL)])
    await store.add([rated("a", Rating.NOT_RELEVANT)])
    (sample,) = (await store.by_tool(0.0))["Read"]
    assert sample.evidence is Rating.NOT_RELEVANT


async def test_ratings_move_to_another_store_once(store: LearningStore, tmp_path: Path) -> None:
    database = open_database(tmp_path / "other.db", [OWNER], synchronous="FULL")
    other = Ratings(database)
    await store.add([rated("a", Rating.HELPFUL, at=2.0), rated("b", Rating.NOT_RELEVANT, at=3.0)])
    await store.add([rated("c", Rating.HELPFUL, at=4.0)])
    await store.forget("c")
    await store.shift({"Read": 0.5, "Grep": -0.25}, 7.0)
    await other.shift({"Grep": 1.0}, 9.0)
    assert await copy_ratings(store, other) == 2
    assert await copy_ratings(store, other) == 0
    assert await other.valid() == await store.valid()
    assert await other.shifts() == {"Read": (0.5, 7.0), "Grep": (1.0, 9.0)}
    assert await copy_ratings(other, store) == 0
    assert (await store.shifts())["Grep"] == (1.0, 9.0)
    await database.aclose()


async def test_evidence_against_names_only_memories_with_a_bad_rating(store: LearningStore) -> None:
    await store.add([rated("good", Rating.HELPFUL), rated("bad", Rating.HELPFUL)])
    await store.add([rated("bad", Rating.ALREADY_KNOWN, at=2.0)])
    against = await store.against()
    assert {memory: len(samples) for memory, samples in against.items()} == {"bad": 2}


async def test_thresholds_move_and_are_forgotten(store: LearningStore) -> None:
    assert await store.shifts() == {}
    await store.shift({"Read": 0.5, "Grep": -0.25}, 10.0)
    await store.shift({"Read": 0.75}, 11.0)
    assert await store.shifts() == {"Read": (0.75, 11.0), "Grep": (-0.25, 10.0)}
    await store.add([rated("a", Rating.HELPFUL), rated("b", Rating.HELPFUL)])
    assert await store.forget("a") == 1
    assert await store.shifts() != {}
    assert await store.forget() == 1
    assert await store.shifts() == {}
    assert await store.by_tool(0.0) == {}


async def test_old_ratings_are_purged(store: LearningStore) -> None:
    await store.add([rated("a", Rating.HELPFUL, at=1.0), rated("a", Rating.HELPFUL, at=100.0)])
    assert await store.purge(RETENTION_SECONDS + 50.0) == 1
    assert await store.purge(RETENTION_SECONDS + 50.0) == 0
    assert len((await store.by_tool(0.0))["Read"]) == 1


async def test_every_change_of_another_process_changes_the_version(
    store: LearningStore, tmp_path: Path
) -> None:
    other = await _another(store, tmp_path)
    versions = [await store.version()]
    await other.add([rated("a", Rating.HELPFUL)])
    versions.append(await store.version())
    await other.shift({"Read": 0.5}, 1.0)
    versions.append(await store.version())
    await other.forget()
    versions.append(await store.version())
    assert len(set(versions)) == 4
    assert await store.version() == versions[-1]


async def _another(store: LearningStore, folder: Path) -> LearningStore:
    """The same store, as another process opens it."""
    if isinstance(store, PostgresRatings):
        return store
    return Ratings(open_database(folder / "memory.db", [OWNER], synchronous="FULL"))
