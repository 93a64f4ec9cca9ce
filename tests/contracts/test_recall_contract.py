"""The contract of every `Recall`, whatever it recalls from. Add a new place to `PLACES`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.stores import open_postgres

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.sqlite.database import open_database
from upwell.ground.text.words import terms
from upwell.ground.types.memory import Found, Memory, Query, Scope
from upwell.memory.base import Recall, Recalls, StoreRecall
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.external.ltm import LtmRecall
from upwell.memory.sources import OWNER as SOURCES_OWNER
from upwell.memory.sources import SqliteSources, source_at
from upwell.memory.sqlite.store import OWNER as MEMORY_OWNER
from upwell.memory.sqlite.store import SqliteStore
from upwell.sessions.index import SessionIndex
from upwell.sessions.recall import States
from upwell.sessions.turns import Turn
from upwell.testing import ManualClock

Fill = Callable[[Sequence[Memory]], Awaitable[None]]
Place = tuple[Recall, Fill]


async def builtin(folder: Path, close: AsyncExitStack) -> Place:
    database = open_database(folder / "memory.db", [MEMORY_OWNER], synchronous="NORMAL")
    close.push_async_callback(database.aclose)
    store = SqliteStore(database)

    async def fill(memories: Sequence[Memory]) -> None:
        await store.add(memories)

    return StoreRecall(store), fill


async def postgres(folder: Path, close: AsyncExitStack) -> Place:
    store, aclose = open_postgres(folder, ManualClock())
    close.push_async_callback(aclose)

    async def fill(memories: Sequence[Memory]) -> None:
        await store.add(memories)

    return StoreRecall(store), fill


async def documents(folder: Path, close: AsyncExitStack) -> Place:
    """Documents: each memory is a file, and a project is a repository of that name in the
    folder.
    """
    database = open_database(folder / "sources.db", [SOURCES_OWNER], synchronous="NORMAL")
    sources = SqliteSources(database)
    made = Documents(DocumentCatalog(folder / "index.db"), sources)
    close.push_async_callback(database.aclose)
    close.push_async_callback(made.aclose)

    async def fill(memories: Sequence[Memory]) -> None:
        for number, memory in enumerate(memories):
            root = folder / (Path(memory.project).name if memory.project else "everywhere")
            root.mkdir(exist_ok=True)
            if memory.project:
                (root / ".git").mkdir(exist_ok=True)
            front = f"---\nnamespace: {memory.namespace}\npaths: [{', '.join(memory.paths)}]\n---\n"
            (root / f"n{number}.md").write_text(front + memory.text)
            await sources.add(source_at(root, folder))

    return made, fill


async def together(folder: Path, close: AsyncExitStack) -> Place:
    """Two places: the first half of the memories is in the store, the other half in documents."""
    (stored, keep), (files, write) = await builtin(folder, close), await documents(folder, close)

    async def fill(memories: Sequence[Memory]) -> None:
        half = len(memories) // 2
        await keep(memories[:half])
        await write(memories[half:])

    return Recalls([stored, files]), fill


class Elsewhere:
    """Another memory server: finds texts that share a word with the query."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def ready(self) -> bool:
        return True

    async def tools(self, deadline: Deadline) -> Mapping[str, frozenset[str]]:
        return {"find": frozenset({"query"})}

    async def call(
        self, tool: str, arguments: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, Any]:
        asked = set(terms(arguments["query"]))
        hits = [{"text": text} for text in self.texts if asked & set(terms(text))]
        return {"structuredContent": {"hits": hits}, "content": []}

    async def aclose(self) -> None:
        return None


async def ltm(folder: Path, close: AsyncExitStack) -> Place:
    server = Elsewhere()

    async def fill(memories: Sequence[Memory]) -> None:
        server.texts += [memory.text for memory in memories]

    return LtmRecall(server), fill


async def states(folder: Path, close: AsyncExitStack) -> Place:
    """States of past sessions: each memory is what a session concluded."""
    index = SessionIndex(folder / "sessions.db", lambda: [], clock=ManualClock())
    recall = States(folder / "sessions.db", clock=ManualClock())
    close.push_async_callback(index.aclose)
    close.push_async_callback(recall.aclose)

    async def fill(memories: Sequence[Memory]) -> None:
        for number, memory in enumerate(memories):
            turn = Turn(session=f"s{number}", host="claude", number=0, question=memory.text)
            turn.ended = 990_000.0
            await index.add([turn])

    return recall, fill


OURS = {"builtin": builtin, "postgres": postgres, "documents": documents, "together": together}
PLACES = {**OURS, "ltm": ltm, "states": states}
"""`ltm` is not in `OURS`, because the memories of another program have only a text: no project,
namespace or files. The files of a state are its own, and every state has a project."""


@pytest.fixture(params=sorted(OURS))
async def own_place(request, tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as close:
        yield await OURS[request.param](tmp_path, close)


@pytest.fixture(params=sorted(PLACES))
async def place(request, tmp_path: Path) -> AsyncIterator[Place]:
    async with AsyncExitStack() as close:
        yield await PLACES[request.param](tmp_path, close)


async def found(recall: Recall, *texts: str, paths: Sequence[str] = (), **scope) -> list[str]:
    query = Query(texts=texts, paths=tuple(paths), scope=Scope(**scope))
    return [hit.memory.text for hit in (await recall.search(query, Deadline.after(30))).hits]


async def test_an_empty_memory_has_no_hits(place: Place) -> None:
    recall, _ = place
    assert await found(recall, "kettle") == []
    assert (await recall.ping()).ok


async def test_relevant_memories_are_found_best_first(place: Place) -> None:
    recall, fill = place
    await fill(
        [
            Memory(text="a kettle in a long sentence about gardens, rain and the colour of leaves"),
            Memory(text="bread needs salt"),
            Memory(text="kettle kettle kettle"),
            Memory(text="the harbour is closed in winter"),
        ]
    )
    hits = (await recall.search(Query(texts=("kettle",)), Deadline.after(30))).hits
    assert len(hits) == 2
    assert all("kettle" in hit.memory.text for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    related = "share" if isinstance(recall, States) else "bm25"
    assert all(0.0 <= hit.score <= 1.0 and hit.signals[related] > 0 for hit in hits)
    assert {hit.matched for hit in hits} == {("kettle",)}
    assert all(hit.memory.id and hit.memory.content_hash for hit in hits)


async def test_a_project_sees_its_own_memories_and_the_global_ones(
    own_place: Place, tmp_path: Path
) -> None:
    recall, fill = own_place
    first, second = str(tmp_path / "one"), str(tmp_path / "two")
    await fill(
        [
            Memory(text="kettle of one", project=first),
            Memory(text="kettle everywhere"),
            Memory(text="kettle of one again", project=first),
            Memory(text="kettle of two", project=second),
        ]
    )
    assert set(await found(recall, "kettle", project=second)) == {
        "kettle everywhere",
        "kettle of two",
    }
    assert len(await found(recall, "kettle")) == 4
    assert await found(recall, "kettle", project=str(tmp_path / "none")) == ["kettle everywhere"]


async def test_namespaces_filter_inside_the_search(own_place: Place) -> None:
    recall, fill = own_place
    noise = [Memory(text=f"kettle {n}", namespace="noise") for n in range(60)]
    rare = Memory(text="kettle of note", namespace="decisions")
    await fill([*noise[:30], *noise[30:], rare])
    assert await found(recall, "kettle", namespaces=("decisions",)) == ["kettle of note"]


async def test_an_empty_namespace_has_no_hits(place: Place) -> None:
    recall, fill = place
    await fill([Memory(text="the kettle"), Memory(text="the teapot")])
    assert await found(recall, "kettle", namespaces=("nowhere",)) == []


async def test_a_file_finds_the_memories_about_it(own_place: Place) -> None:
    recall, fill = own_place
    await fill(
        [
            Memory(text="it retries twice", paths=("src/net/client.py",)),
            Memory(text="a guide", paths=("docs/intro.md",)),
            Memory(text="it caches", paths=("src/net/cache.py",)),
        ]
    )
    assert (await found(recall, paths=["src/net/client.py"]))[0] == "it retries twice"
    assert (await found(recall, paths=["src/net/cache.py"]))[0] == "it caches"


async def test_the_limit_holds(place: Place) -> None:
    recall, fill = place
    await fill([Memory(text=f"kettle {n} of many") for n in range(20)])
    hits = (await recall.search(Query(texts=("kettle",), limit=3), Deadline.after(30))).hits
    assert len(hits) == 3


@pytest.mark.parametrize("text", ["", '"', "NEAR(", "a AND", "\0", "\ud800", "*", "x" * 5000])
async def test_no_text_breaks_a_query(place: Place, text: str) -> None:
    recall, fill = place
    await fill([Memory(text="the kettle"), Memory(text="the teapot")])
    query = Query(texts=(text,), paths=(text,), symbols=(text,))
    assert isinstance(await recall.search(query, Deadline.after(30)), Found)


async def test_past_the_deadline_the_hits_that_are_ready_are_returned(own_place: Place) -> None:
    recall, fill = own_place
    await fill([Memory(text="the kettle"), Memory(text="the teapot")])
    assert isinstance(await recall.search(Query(texts=("kettle",)), Deadline.after(0.0)), Found)


async def test_another_program_that_has_not_answered_by_the_deadline_is_unavailable(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as close:
        recall, fill = await ltm(tmp_path, close)
        await fill([Memory(text="the kettle")])
        with pytest.raises(RecallUnavailable):
            await recall.search(Query(texts=("kettle",)), Deadline.after(0.0))
