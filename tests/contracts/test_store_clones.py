"""Memories of a repository are found in each of its clones and worktrees, in every store."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contracts.stores import STORES

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Store, StoreRecall
from upwell.testing import ManualClock

SHOP = "github.com/acme/shop"


@pytest.fixture(params=sorted(STORES))
async def store(request, tmp_path: Path) -> AsyncIterator[Store]:
    opened, close = STORES[request.param](tmp_path, ManualClock())
    yield opened
    await close()


def clone(folder: Path, remote: str) -> str:
    folder.mkdir()
    for args in (["init", "-q"], ["remote", "add", "origin", remote]):
        subprocess.run(["git", *args], cwd=folder, check=True)
    return str(folder)


async def found(store: Store, project: str) -> set[str]:
    query = Query(texts=("when does the tide turn",), scope=Scope(project=project))
    hits = (await StoreRecall(store).search(query, Deadline.after(30.0))).hits
    listed = {memory.id for memory in await store.list(Scope(project=project))}
    assert {hit.memory.id for hit in hits} == listed
    return listed


async def test_clones_see_what_belongs_to_their_remote_address(
    store: Store, tmp_path: Path
) -> None:
    one = clone(tmp_path / "one", "git@github.com:acme/shop.git")
    two = clone(tmp_path / "two", "https://github.com/acme/shop")
    other = clone(tmp_path / "other", "https://github.com/acme/other")
    await store.add(
        [
            Memory(text="The tide turns at noon", id="shared", project=SHOP),
            Memory(text="The tide turns at dusk", id="everywhere"),
            Memory(text="The tide turns at night", id="elsewhere", project=other),
        ]
    )
    assert await found(store, one) == await found(store, two) == {"shared", "everywhere"}
    assert await found(store, SHOP) == {"shared", "everywhere"}
    assert await found(store, other) == {"everywhere", "elsewhere"}


async def test_a_file_is_found_in_another_clone(store: Store, tmp_path: Path) -> None:
    one = clone(tmp_path / "one", "git@github.com:acme/shop.git")
    memory = Memory(text="Rounding", id="m", project=SHOP, paths=("src/tide.py",))
    await store.add([memory])
    query = Query(texts=(), paths=(f"{one}/src/tide.py",), scope=Scope(project=one))
    hits = (await StoreRecall(store).search(query, Deadline.after(30.0))).hits
    assert [hit.memory.id for hit in hits] == ["m"]


async def test_worktrees_share_what_is_stored_in_any_of_them(store: Store, tmp_path: Path) -> None:
    main, tree, other = (str(tmp_path / name) for name in ("main", "tree", "other"))
    for folder in (main, other):
        subprocess.run(["git", "init", "-q", folder], check=True)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for args in (["commit", "-q", "--allow-empty", "-m", "x"], ["worktree", "add", "-q", tree]):
        subprocess.run(["git", *author, *args], cwd=main, check=True, capture_output=True)
    paths = (f"{tree}/src/tide.py",)
    await store.add(
        [
            Memory(text="The tide turns at noon", id="main", project=main),
            Memory(text="The tide turns at dusk", id="tree", project=tree, paths=paths),
            Memory(text="The tide turns at night", id="other", project=other),
        ]
    )
    assert await found(store, main) == await found(store, tree) == {"main", "tree"}
    assert await found(store, other) == {"other"}
    (memory,) = await store.get_many(["tree"])
    assert (memory.project, memory.paths) == (main, ("src/tide.py",))
    for folder in (main, tree):
        file = f"{folder}/src/tide.py"
        query = Query(texts=("tide",), paths=(file,), file=file, scope=Scope(project=folder))
        hits = (await StoreRecall(store).search(query, Deadline.after(30.0))).hits
        assert hits[0].memory.id == "tree"
