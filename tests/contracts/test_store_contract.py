"""The contract of every `Store` (`tests/contracts/stores.py`)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.contracts.stores import STORES

from upwell.ground.clock import Deadline
from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Hit, Memory, Provenance, Query, Scope, Trust
from upwell.memory.base import Store, StoreRecall
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=sorted(STORES))
async def store(request, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Store]:
    opened, close = STORES[request.param](tmp_path, clock)
    yield opened
    await close()


def later() -> Deadline:
    return Deadline.after(30.0)


async def search(store: Store, query: Query, deadline: Deadline | None = None) -> tuple[Hit, ...]:
    return (await StoreRecall(store).search(query, deadline or later())).hits


async def ids(store: Store, *texts: str, **scope) -> list[str]:
    hits = await search(store, Query(texts=texts, scope=Scope(**scope)))
    return [hit.memory.id for hit in hits]


async def test_every_field_of_a_memory_is_stored(store: Store, clock: ManualClock) -> None:
    memory = Memory(
        text="Prüfe \0 die Ränder\r\n",
        id="m1",
        namespace="decisions",
        tags=("a", "b"),
        paths=("src/app.py",),
        symbols=("App.run",),
        triggers=("error:1f0c",),
        occurrences=3,
        project="/home/x/repo",
        source="memory/2026-04-09.md",
        lines=(3, 5),
        provenance=Provenance(door="tool", server="fs", tool="read_file", session="s"),
        trust=Trust.AGENT,
        pinned=True,
        supersedes="m0",
        expires_at=clock.now() + 60,
        created_at=1.0,
        updated_at=2.0,
        viewed_at=3.0,
    )
    await store.add([memory])
    stored = await store.get("m1")
    assert stored is not None
    assert replace(stored, content_hash="") == memory
    assert len(stored.content_hash) == 32


async def test_missing_ids_and_times_are_assigned(store: Store, clock: ManualClock) -> None:
    added = await store.add([Memory(text="one"), Memory(text="two")])
    assert len({entry.id for entry in added}) == 2
    assert all(len(entry.id) >= 12 for entry in added)
    stored = await store.get(added[0].id)
    assert stored is not None
    assert stored.created_at == stored.viewed_at == clock.now()


async def test_a_given_id_replaces_the_memory_that_had_it(store: Store) -> None:
    await store.add([Memory(text="the kettle is red", id="k")])
    await store.add([Memory(text="the teapot is green", id="k")])
    assert await ids(store, "kettle") == []
    assert await ids(store, "teapot") == ["k"]
    assert len(await store.list(Scope())) == 1


async def test_the_last_of_two_equal_ids_in_a_batch_is_stored(store: Store) -> None:
    await store.add([Memory(text="first", id="k"), Memory(text="second", id="k")])
    stored = await store.get("k")
    assert stored is not None
    assert stored.text == "second"
    assert len(await store.list(Scope())) == 1


async def test_unknown_ids_give_none_and_false(store: Store) -> None:
    assert await store.get("nobody") is None
    assert await store.delete("nobody") is False
    assert await store.restore("nobody") is False
    with pytest.raises(UsageError):
        await store.update(Memory(text="x", id="nobody"))


async def test_an_empty_text_is_refused_with_its_whole_batch(store: Store) -> None:
    with pytest.raises(UsageError):
        await store.add([Memory(text="good"), Memory(text=" \n ")])
    assert await store.list(Scope()) == []


async def test_update_changes_the_text_and_every_index(store: Store, clock: ManualClock) -> None:
    await store.add([Memory(text="port is 8080", id="m", paths=("old.toml",))])
    clock.advance(5)
    await store.update(Memory(text="socket is 9090", id="m", paths=("new.toml",)))
    stored = await store.get("m")
    assert stored is not None
    assert (stored.created_at, stored.updated_at) == (clock.now() - 5, clock.now())
    assert await ids(store, "port") == []
    assert await ids(store, "socket") == ["m"]
    by_path = [
        [hit.memory.id for hit in await search(store, Query(texts=(), paths=(path,)))]
        for path in ("old.toml", "new.toml")
    ]
    assert by_path == [[], ["m"]]


async def test_a_deleted_memory_leaves_every_index_and_can_be_restored_whole(store: Store) -> None:
    await store.add([Memory(text="the kettle is red", id="k", paths=("a/b.py",), tags=("t",))])
    before = await store.get("k")
    assert await store.delete("k") is True
    assert await store.get("k") is None
    assert await store.list(Scope()) == []
    assert await search(store, Query(texts=("kettle",), paths=("a/b.py",))) == ()
    assert await store.delete("k") is False
    assert await store.restore("k") is True
    assert await store.get("k") == before
    assert await ids(store, "kettle") == ["k"]
    assert await store.restore("k") is False


async def test_an_expired_memory_is_never_found(store: Store, clock: ManualClock) -> None:
    await store.add(
        [Memory(text="kettle on", id="k", expires_at=clock.now() + 10, paths=("a.py",))]
    )
    assert await ids(store, "kettle") == ["k"]
    clock.advance(11)
    assert await search(store, Query(texts=("kettle",), paths=("a.py",))) == ()
    assert await store.list(Scope()) == []
    assert await store.get("k") is None


async def test_a_project_sees_its_own_memories_and_the_global_ones(store: Store) -> None:
    await store.add(
        [
            Memory(text="kettle here", id="mine", project="/a"),
            Memory(text="kettle there", id="other", project="/b"),
            Memory(text="kettle anywhere", id="global"),
        ]
    )
    assert set(await ids(store, "kettle", project="/a")) == {"mine", "global"}
    assert set(await ids(store, "kettle")) == {"mine", "other", "global"}
    listed = await store.list(Scope(project="/a"))
    assert {memory.id for memory in listed} == {"mine", "global"}


async def test_the_scope_filters_inside_the_search_not_after_it(store: Store) -> None:
    noise = [Memory(text=f"kettle {i}", project="/b") for i in range(300)]
    await store.add(
        [*noise, Memory(text="a kettle among many other words", id="mine", project="/a")]
    )
    assert await ids(store, "kettle", project="/a") == ["mine"]


async def test_namespaces_filter_inside_the_search(store: Store) -> None:
    noise = [Memory(text=f"kettle {i}", namespace="noise") for i in range(300)]
    await store.add([*noise, Memory(text="kettle of note", id="n", namespace="decisions")])
    assert await ids(store, "kettle", namespaces=("decisions",)) == ["n"]
    assert await ids(store, "kettle", namespaces=("%", "_", "../decisions")) == []


async def test_list_is_newest_first_and_pages(store: Store) -> None:
    await store.add([Memory(text=f"note {i}", id=str(i), created_at=float(i)) for i in range(5)])
    assert [m.id for m in await store.list(Scope(), limit=2)] == ["4", "3"]
    assert [m.id for m in await store.list(Scope(), limit=2, offset=4)] == ["0"]


async def test_scores_are_probabilities_in_order_with_their_signals(store: Store) -> None:
    await store.add(
        [
            Memory(text="kettle kettle kettle", id="strong"),
            Memory(text="a kettle in a long sentence about gardens and rain", id="weak"),
            Memory(text="nothing of the kind", id="none"),
        ]
    )
    hits = await search(store, Query(texts=("kettle",)))
    assert [hit.memory.id for hit in hits] == ["strong", "weak"]
    assert all(0.0 <= hit.score <= 1.0 for hit in hits)
    assert hits[0].signals["bm25"] > hits[1].signals["bm25"] > 0
    assert hits[0].matched == ("kettle",)


async def test_the_limit_holds(store: Store) -> None:
    await store.add([Memory(text=f"kettle {i}") for i in range(20)])
    hits = await search(store, Query(texts=("kettle",), limit=3))
    assert len(hits) == 3


async def test_a_file_finds_the_memories_about_it_without_any_words(store: Store) -> None:
    await store.add(
        [
            Memory(text="retries twice", id="exact", paths=("src/net/client.py",)),
            Memory(text="unrelated", id="other", paths=("docs/intro.md",)),
            *(Memory(text=f"n{i}", paths=(f"pkg{i}/client.py",)) for i in range(20)),
        ]
    )
    hits = await search(store, Query(texts=(), paths=("/home/x/repo/src/net/client.py",)))
    assert hits[0].memory.id == "exact"
    assert "other" not in {hit.memory.id for hit in hits}
    assert hits[0].signals["path_join"] == 1.0


async def test_a_symbol_finds_the_memories_about_it(store: Store) -> None:
    await store.add([Memory(text="it leaks", id="s", symbols=("pool.ConnPool.acquire",))])
    hits = await search(store, Query(texts=(), symbols=("ConnPool.acquire",)))
    assert [hit.memory.id for hit in hits] == ["s"]


async def test_duplicates_are_reported_and_stored(store: Store) -> None:
    text = "always run the migrations before the integration tests on the staging cluster"
    await store.add([Memory(text=text, id="a")])
    again, near, far = await store.add(
        [
            Memory(text=text, id="b"),
            Memory(text=text + " please", id="c"),
            Memory(text="bake bread on Sundays", id="d"),
        ]
    )
    assert "a" in again.duplicates
    assert "a" in near.duplicates
    assert far.duplicates == ()
    assert len(await store.list(Scope())) == 4


async def test_past_the_deadline_the_hits_that_are_ready_are_returned(store: Store) -> None:
    await store.add([Memory(text="kettle")])
    query = Query(texts=("kettle",))
    assert isinstance(await search(store, query, Deadline.after(0.0)), tuple)


NASTY = [
    '"', '""', "'", "*", "NEAR(", "a AND", "OR", "body:x", "^x", "x NOT y", "(", ")", "-x", "{a b}",
    '"NEAR(" OR *', "\0", "a\0b", "\ud800", "😀", "שלום עולם", "日本語のテキスト", "e\u0301", "%_",
    "../../etc/passwd", "DROP TABLE memory;--", "\u202eevil", "x" * 5000, "a " * 5000,
]  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
async def test_hostile_text_is_stored_unchanged_and_never_breaks_a_query(
    store: Store, text: str
) -> None:
    await store.add([Memory(text=f"note {text} end", id="m"), Memory(text="another")])
    stored = await store.get("m")
    assert stored is not None
    assert stored.text == f"note {text} end"
    assert isinstance(await search(store, Query(texts=(text,))), tuple)
    assert "m" in await ids(store, f"note {text}")
    paths = Query(texts=(), paths=(text,), symbols=(text,))
    assert isinstance(await search(store, paths), tuple)
    assert await store.delete("m")
    assert await store.restore("m")
    assert (await store.get("m")) == stored


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(min_size=1), query=st.text())
def test_any_text_round_trips_under_any_query(text: str, query: str, tmp_path_factory) -> None:
    async def run() -> None:
        folder = tmp_path_factory.mktemp("store")
        for opener in STORES.values():
            store, close = opener(folder, ManualClock())
            try:
                if text.strip():
                    added = await store.add([Memory(text=text, paths=(query,), tags=(query,))])
                    stored = await store.get(added[0].id)
                    assert stored is not None
                    assert stored.text == text
                    assert stored.tags == (query,)
                await search(store, Query(texts=(query,), paths=(query,)))
            finally:
                await close()

    asyncio.run(run())


async def test_a_megabyte_is_stored(store: Store) -> None:
    text = "wörter und zeilen\n" * 58_000
    await store.add([Memory(text=text, id="big")])
    stored = await store.get("big")
    assert stored is not None
    assert stored.text == text
    assert await ids(store, "zeilen") == ["big"]
    assert isinstance(await ids(store, text), list)


async def test_ping_counts_the_memories(store: Store) -> None:
    await store.add([Memory(text="one")])
    ping = await store.ping()
    assert (ping.ok, ping.detail) == (True, "1 memory")


async def test_standing_rules_are_listed_separately_and_never_found(
    store: Store, clock: ManualClock
) -> None:
    await store.add(
        [
            Memory(text="never force push the kettle", id="rule", pinned=True),
            Memory(text="a rule of another project", id="other", pinned=True, project="/b"),
            Memory(text="an agent cannot pin", id="agent", pinned=True, trust=Trust.AGENT),
            Memory(text="kettle", id="plain", paths=("src/kettle.py",)),
            Memory(text="over", id="over", pinned=True, expires_at=clock.now() - 1),
        ]
    )
    assert await ids(store, "kettle force push") == ["plain"]
    hits = await search(store, Query(texts=(), paths=("src/kettle.py",)))
    assert [hit.memory.id for hit in hits] == ["plain"]
    assert [m.id for m in await store.pinned(Scope(project="/a"))] == ["rule"]
    assert {m.id for m in await store.pinned(Scope())} == {"rule", "other"}
    assert len(await store.pinned(Scope(), limit=1)) == 1


async def test_standing_rules_follow_every_change(store: Store, clock: ManualClock) -> None:
    soon = clock.now() + 60
    await store.add(
        [
            Memory(text="never force push", id="rule", pinned=True),
            Memory(text="freeze until noon", id="freeze", pinned=True, expires_at=soon),
        ]
    )
    assert {m.id for m in await store.pinned(Scope())} == {"rule", "freeze"}
    clock.advance(60)
    assert [m.id for m in await store.pinned(Scope())] == ["rule"]
    await store.add([Memory(text="sign every commit", id="second", pinned=True)])
    assert {m.id for m in await store.pinned(Scope())} == {"rule", "second"}
    await store.delete("rule")
    assert [m.id for m in await store.pinned(Scope())] == ["second"]


async def test_the_newer_memory_comes_before_the_one_that_it_supersedes(store: Store) -> None:
    await store.add(
        [
            Memory(text="the kettle listens on port 8080", id="old", created_at=1.0),
            Memory(text="it moved to 9090", id="new", supersedes="old", created_at=2.0),
            Memory(text="a kettle of fish", id="fish", created_at=3.0),
        ]
    )
    hits = await search(store, Query(texts=("kettle port 8080",)))
    assert [hit.memory.id for hit in hits][:2] == ["new", "old"]
    assert [bool(hit.signals.get("superseded")) for hit in hits[:2]] == [False, True]
    assert hits[0].score >= hits[1].score
    assert await store.superseded(["old", "new", "fish", "nobody"]) == {"old": "new"}
    await store.add([Memory(text="and then to 7070", id="newest", supersedes="new")])
    assert await store.superseded(["old", "new"]) == {"old": "newest", "new": "newest"}
    assert (await ids(store, "kettle port 8080"))[:2] == ["newest", "old"]
    await store.delete("newest")
    await store.delete("new")
    assert await store.superseded(["old"]) == {}
    assert (await ids(store, "kettle port 8080"))[0] == "old"


async def test_a_circle_of_successors_ends(store: Store) -> None:
    await store.add(
        [
            Memory(text="kettle one", id="a", supersedes="b"),
            Memory(text="kettle two", id="b", supersedes="a"),
        ]
    )
    assert set(await ids(store, "kettle")) == {"a", "b"}


async def test_an_invisible_successor_supersedes_nothing(store: Store, clock: ManualClock) -> None:
    await store.add(
        [
            Memory(text="kettle one", id="a", project="/a"),
            Memory(text="kettle two", id="b", supersedes="a", project="/b"),
            Memory(text="kettle three", id="c", supersedes="a", expires_at=clock.now() + 5),
        ]
    )
    clock.advance(10)
    hits = await search(store, Query(texts=("kettle",), scope=Scope(project="/a")))
    assert [(hit.memory.id, hit.signals.get("superseded")) for hit in hits] == [("a", None)]


async def test_the_trash_is_listed_and_purging_is_for_good(
    store: Store, clock: ManualClock
) -> None:
    await store.add([Memory(text=f"kettle {name}", id=name) for name in "abc"])
    for name in "ab":
        clock.advance(1)
        await store.delete(name)
    assert [memory.id for memory in await store.trash()] == ["b", "a"]
    assert len(await store.trash(limit=1)) == 1
    assert await store.purge("a") == 1
    assert await store.purge("c") == 1
    assert await store.purge("c") == 0
    assert [memory.id for memory in await store.trash()] == ["b"]
    assert await store.restore("a") is False
    assert await ids(store, "kettle") == []


async def test_the_token_differs_after_every_change(store: Store) -> None:
    tokens = [await store.changes()]
    await store.add([Memory(text="The kettle boils", id="k")])
    tokens.append(await store.changes())
    await store.update(Memory(text="The kettle whistles", id="k"))
    tokens.append(await store.changes())
    await store.delete("k")
    tokens.append(await store.changes())
    await store.restore("k")
    tokens.append(await store.changes())
    await store.purge("k")
    tokens.append(await store.changes())
    assert len(set(tokens)) == len(tokens)
    assert await store.changes() == tokens[-1]


async def test_stamps_show_which_memories_changed(store: Store, clock: ManualClock) -> None:
    await store.add([Memory(text=f"note {n}", id=f"m{n}", created_at=float(n)) for n in range(5)])
    before = await store.stamps(limit=3)
    assert list(before) == ["m4", "m3", "m2"]
    clock.advance(10)
    await store.update(Memory(text="another note", id="m3"))
    after = await store.stamps(limit=3)
    assert {memory_id for memory_id in after if after[memory_id] != before[memory_id]} == {"m3"}
    await store.add([Memory(text="gone soon", id="brief", expires_at=clock.now() + 1)])
    assert "brief" in await store.stamps(limit=10)
    clock.advance(2)
    assert "brief" not in await store.stamps(limit=10)


async def test_several_memories_are_read_at_once(store: Store, clock: ManualClock) -> None:
    await store.add([Memory(text=f"note {n}", id=f"m{n}") for n in range(3)])
    await store.add([Memory(text="gone soon", id="brief", expires_at=clock.now() + 1)])
    clock.advance(2)
    await store.delete("m1")
    match = await store.get_many(["m2", "m1", "m0", "unknown", "brief"])
    assert sorted(memory.id for memory in match) == ["m0", "m2"]
    assert await store.get_many([]) == []


async def test_words_are_counted_in_all_their_forms(store: Store) -> None:
    await store.add([Memory(text="herons wade"), Memory(text="a heron", project="/p")])
    counts = await store.word_counts(["heron", "herons", "wombat"])
    assert counts.memories == 2
    assert counts.holding == {"heron": 2, "herons": 2, "wombat": 0}


async def test_a_pool_has_the_candidates_and_no_others(store: Store) -> None:
    await store.add(
        [
            Memory(text="The kettle boils", id="k"),
            Memory(text="The lantern hangs", id="l", paths=("src/lantern.py",)),
            Memory(text="Tulips bloom", id="t"),
        ]
    )
    pool = await store.candidates(Query(texts=("kettle",), paths=("src/lantern.py",)), later())
    assert {candidate.id for candidate in pool.candidates.values()} == {"k", "l"}
    assert {candidate.load().text for candidate in pool.candidates.values()} == {
        "The kettle boils",
        "The lantern hangs",
    }
    assert pool.corpus.memories == 3


@pytest.mark.slow
async def test_memories_are_read_while_others_are_deleted(store: Store) -> None:
    """A read sees one snapshot: a deletion in between neither raises nor tears the result."""
    ids = [f"m{n}" for n in range(150)]
    await store.add([Memory(text=f"kettle {n}", id=ids[n]) for n in range(150)])

    async def delete_all() -> None:
        for memory_id in ids:
            await store.delete(memory_id)

    deleting = asyncio.create_task(delete_all())
    while not deleting.done():
        for entry in await asyncio.gather(*(store.get(memory_id) for memory_id in ids)):
            assert entry is None or entry.text == f"kettle {entry.id[1:]}"
        await search(store, Query(texts=("kettle",)))
    await deleting
    assert await store.get_many(ids) == []
