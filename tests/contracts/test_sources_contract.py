"""The contract of every list of sources."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.sqlite.database import open_database
from upwell.memory.sources import OWNER, Source, Sources, SqliteSources


@pytest.fixture
async def sources(tmp_path: Path) -> AsyncIterator[Sources]:
    database = open_database(tmp_path / "memory.db", [OWNER], synchronous="FULL")
    yield SqliteSources(database)
    await database.aclose()


async def test_each_path_is_listed_once_and_can_be_removed(sources: Sources) -> None:
    assert await sources.all() == []
    one, two = Source("/a", "a"), Source("/b", "b", "/project")
    await sources.add(one)
    before = sources.stamp()
    await sources.add(two)
    assert sources.stamp() != before
    await sources.add(Source("/a", "other"))
    assert {source.path: source for source in await sources.all()} == {
        "/a": Source("/a", "other"),
        "/b": two,
    }
    assert await sources.remove("/a")
    assert not await sources.remove("/a")
    assert await sources.all() == [two]
