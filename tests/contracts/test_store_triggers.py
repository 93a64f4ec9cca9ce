"""Triggers in every `Store`: the exact keys by which memories are found without a shared word."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.stores import STORES
from tests.contracts.test_store_contract import search

from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Store
from upwell.memory.ranking.scoring import precision_of
from upwell.testing import ManualClock


@pytest.fixture(params=sorted(STORES))
async def store(request, tmp_path: Path) -> AsyncIterator[Store]:
    opened, close = STORES[request.param](tmp_path, ManualClock())
    yield opened
    await close()


async def test_a_trigger_finds_its_memory_without_a_shared_word(store: Store) -> None:
    await store.add(
        [
            Memory(text="bake with --lid", id="hit", triggers=("error:1f0c", "place:oven.py")),
            Memory(text="kettle", id="words"),
            Memory(text="bake without a lid", id="near", triggers=("error:1f0",)),
        ]
    )
    hits = await search(store, Query(texts=("kettle",), triggers=("error:9", "error:1f0c")))
    assert {hit.memory.id: hit.trigger for hit in hits} == {"hit": "error:1f0c", "words": ""}
    assert await search(store, Query(texts=(), triggers=("place:oven",))) == ()


async def test_triggers_respect_the_scope_of_the_query(store: Store) -> None:
    await store.add(
        [
            Memory(text="here", id="here", project="/x", triggers=("error:1",)),
            Memory(text="there", id="there", project="/y", triggers=("error:1",)),
            Memory(text="rules", id="rules", project="/x", triggers=("error:1",), pinned=True),
            Memory(text="aside", id="aside", namespace="other", triggers=("error:1",)),
        ]
    )
    scope = Scope(project="/x", namespaces=("context",))
    hits = await search(store, Query(texts=(), triggers=("error:1",), scope=scope))
    assert [hit.memory.id for hit in hits] == ["here"]


async def test_an_edited_or_deleted_memory_has_only_its_current_triggers(store: Store) -> None:
    async def found(trigger: str) -> list[str]:
        hits = await search(store, Query(texts=(), triggers=(trigger,)))
        return [hit.memory.id for hit in hits]

    await store.add([Memory(text="old", id="m", triggers=("error:1", "error:\ud800"))])
    await store.update(Memory(text="new", id="m", triggers=("error:2",)))
    assert [await found("error:1"), await found("error:\ud800")] == [[], []]
    assert await found("error:2") == ["m"]
    await store.delete("m")
    assert await found("error:2") == []
    await store.restore("m")
    assert await found("error:2") == ["m"]


async def test_a_memory_found_by_its_trigger_has_the_precision_of_its_kind(store: Store) -> None:
    await store.add([Memory(text="kettle", id="m", triggers=("error:1",))])
    for texts in ((), ("kettle",), ("unrelated words here",)):
        (hit,) = await search(store, Query(texts=texts, triggers=("error:1",)))
        assert (hit.score, hit.signals["trigger"]) == (precision_of("error:1"), 1.0)
