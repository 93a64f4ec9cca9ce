"""Topics: their names, their visibility, and that they follow every write."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import Memory
from upwell.memory.library import Library
from upwell.memory.ranking.terms import EVERYDAY_WORDS
from upwell.memory.sqlite.store import OWNER, SqliteStore
from upwell.memory.topics import Rarity, Topics, normal, words_of
from upwell.testing import ManualClock

WORDS = """kettle harbour lantern orchard quarry saddle thicket vessel walnut bramble cinder drizzle
ember furrow gravel hollow inlet juniper kernel ledger meadow nettle osprey pebble""".split()


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    yield opened
    await opened.aclose()


@pytest.fixture
def library(database: Database) -> Library:
    return Library(SqliteStore(database))


@pytest.fixture
def topics(database: Database) -> Topics:
    return Topics([SqliteStore(database)])


async def named(topics: Topics, project: str | None = None) -> dict[str, int]:
    return {topic.name: topic.memory_count for topic in await topics.all(project)}


async def test_tags_and_namespaces_are_topics_and_words_that_are_shared(
    library: Library, topics: Topics
) -> None:
    await library.add_many(
        [
            {"id": "a", "text": "the kettle whistles", "tags": ["Error Handling"]},
            {"id": "b", "text": "a kettle of fish", "namespace": "decisions"},
        ]
    )
    assert await named(topics) == {"kettle": 2, "context": 1, "decisions": 1, "error-handling": 1}
    (kettle,) = [topic for topic in await topics.all() if topic.name == "kettle"]
    assert kettle.namespaces == ("context", "decisions")
    assert await topics.about("error_handling") == ["a"]
    assert await topics.about("Fish") == ["b"]
    assert await topics.about("nobody") == []


async def test_the_most_common_comes_first_then_by_name(library: Library, topics: Topics) -> None:
    tags = [["b", "c"], ["b", "a"], ["b"]]
    await library.add_many([{"text": f"{WORDS[i]}", "tags": tag} for i, tag in enumerate(tags)])
    assert [topic.name for topic in await topics.all()] == ["b", "context", "a", "c"]


async def test_a_tag_that_is_the_namespace_counts_once(library: Library, topics: Topics) -> None:
    await library.add(
        {"text": "decisions are decisions", "tags": ["decisions"], "namespace": "decisions"}
    )
    assert await named(topics) == {"decisions": 1}


async def test_every_write_is_followed(library: Library, topics: Topics) -> None:
    await library.add({"id": "a", "text": "one", "tags": ["sea"]})
    assert await topics.about("sea") == ["a"]
    await library.update(Memory(id="a", text="one", tags=("land",)))
    assert (await topics.about("sea"), await topics.about("land")) == ([], ["a"])
    await library.delete("a")
    assert await named(topics) == {}
    await library.restore("a")
    assert await topics.about("land") == ["a"]


async def test_writes_of_another_connection_are_noticed(
    library: Library, topics: Topics, tmp_path: Path
) -> None:
    await library.add({"id": "a", "text": "one", "tags": ["sea"]})
    assert await topics.about("sea") == ["a"]
    other = open_database(tmp_path / "memory.db", [OWNER], synchronous="NORMAL")
    await Library(SqliteStore(other)).add({"id": "b", "text": "two", "tags": ["sea"]})
    await other.aclose()
    assert sorted(await topics.about("sea")) == ["a", "b"]


async def test_a_project_sees_its_own_topics(library: Library, topics: Topics) -> None:
    await library.add_many(
        [
            {"id": "a", "text": "one", "tags": ["sea"], "project": "/a"},
            {"id": "b", "text": "two", "tags": ["land"], "project": "/b"},
            {"id": "c", "text": "three", "tags": ["sea"]},
        ]
    )
    assert sorted(await topics.about("sea", "/a")) == ["a", "c"]
    assert await topics.about("land", "/a") == []
    assert await named(topics, "/b") == {"context": 2, "land": 1, "sea": 1}


async def test_a_principal_sees_the_topics_of_its_namespaces(
    library: Library, topics: Topics
) -> None:
    shared = {"text": "the tide table", "tags": ["tide"]}
    await library.add_many(
        [{**shared, "namespace": "decisions"}, {**shared, "namespace": "patterns", "id": "p"}]
    )
    seen = {topic.name: topic for topic in await topics.all(namespaces=["patterns"])}
    assert seen["tide"].memory_count == 1
    assert seen["tide"].namespaces == ("patterns",)
    assert "decisions" not in seen
    assert await topics.about("tide", namespaces=["patterns"]) == ["p"]
    assert await topics.about("decisions", namespaces=["patterns"]) == []


async def test_an_expired_memory_has_no_topics(database: Database) -> None:
    clock = ManualClock()
    store = SqliteStore(database, clock=clock)
    topics = Topics([store], clock=clock)
    await store.add([Memory(id="a", text="x", tags=("sea",), expires_at=clock.now() + 10)])
    assert await topics.about("sea") == ["a"]
    clock.advance(11)
    assert await topics.about("sea") == []


def test_names_and_words() -> None:
    assert normal("  Error_Handling  and\tmore ") == "error-handling-and-more"
    assert normal("\ud800") == "\ufffd"
    assert words_of("The the 2026 of ab kettle kettle " + "x" * 40) == frozenset({"kettle"})


async def test_many_at_once_build_one_index(library: Library, topics: Topics) -> None:
    await library.add_many([{"text": f"{word} note", "tags": [word]} for word in WORDS])
    result = await asyncio.gather(*(topics.about(word) for word in WORDS))
    assert all(len(ids) == 1 for ids in result)


async def test_the_index_is_fast(library: Library, topics: Topics) -> None:
    """ADR-003: built in 100 ms per thousand memories, looked up in 5 ms; with a generous margin for
    a busy machine.
    """
    await library.add_many(
        [
            {"text": " ".join(WORDS[(i * k) % 24] for k in range(1, 30)), "tags": [WORDS[i % 24]]}
            for i in range(1_000)
        ]
    )
    began = time.process_time()
    await topics.refresh()
    built = time.process_time() - began
    began = time.process_time()
    for word in WORDS:
        assert await topics.about(word)
    looked_up = (time.process_time() - began) / len(WORDS)
    print(f"built in {built * 1000:.1f} ms, looked up in {looked_up * 1000:.2f} ms")
    assert built < 0.3
    assert looked_up < 0.015


async def test_a_word_that_few_memories_of_any_store_have_is_rare(tmp_path: Path) -> None:
    databases = [
        open_database(tmp_path / f"{name}.db", [OWNER], synchronous="NORMAL") for name in "ab"
    ]
    for number, database in enumerate(databases):
        store = SqliteStore(database)
        await store.add(
            [
                Memory(text=f"settlement of kind {number} {n} runs on herons", project=f"/p{n % 3}")
                for n in range(3)
            ]
        )
    await SqliteStore(databases[0]).add([Memory(text="only the quokka knows")])
    words = ["settlement", "herons", "quokka", "wombat", min(EVERYDAY_WORDS)]
    assert await Rarity(list(map(SqliteStore, databases))).rare(words) == {"quokka", "wombat"}
    assert await Rarity([]).rare(["settlement"]) == {"settlement"}
    for database in databases:
        await database.aclose()
