"""Queries that name a file, in every `Store`: only memories about that file are of use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.contracts.stores import STORES
from tests.contracts.test_store_contract import search

from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Store
from upwell.testing import ManualClock


@pytest.fixture(params=sorted(STORES))
async def store(request, tmp_path: Path) -> AsyncIterator[Store]:
    opened, close = STORES[request.param](tmp_path, ManualClock())
    yield opened
    await close()


@pytest.mark.parametrize(
    ("stored", "project"),
    [
        ("src/net/client.py", "/home/x/repo"),
        ("src/net/client.py", None),
        ("net/client.py", "/home/x/repo"),
        ("client.py", "/home/x/repo"),
        ("/home/x/repo/src/net/client.py", "/home/x/repo"),
        ("SRC/net/Client.py", "/home/x/repo"),
    ],
)
async def test_a_memory_about_the_file_of_a_query_is_found(
    store: Store, stored: str, project: str | None
) -> None:
    await store.add([Memory(text="kettle", id="k", paths=(stored,), project=project)])
    file = "/home/x/repo/src/net/client.py"
    scope = Scope(project="/home/x/repo")
    hits = await search(store, Query(texts=("kettle",), paths=(file,), file=file, scope=scope))
    assert [hit.memory.id for hit in hits] == ["k"]


async def test_without_a_memory_about_the_file_of_a_query_nothing_is_found(store: Store) -> None:
    memories = [
        Memory(text="the kettle boils", id="words"),
        Memory(text="kettle", id="namesake", paths=("other/client.py",)),
        Memory(text="kettle", id="deleted", paths=("src/client.py",)),
        Memory(text="kettle", id="elsewhere", paths=("src/client.py",), project="/y"),
    ]
    await store.add(memories)
    await store.delete("deleted")
    query = Query(texts=("kettle",), file="src/client.py", scope=Scope(project="/x"))
    assert await search(store, query) == ()
    assert await search(store, replace(query, file=""))
    triggered = replace(query, triggers=("absent:src/client.py",))
    assert await search(store, triggered)
