"""Two tenants in one database: no method of one tenant's store reads or changes the memories of the
other tenant, even if an argument names that tenant."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.contracts.stores import TENANTS, TenantStore

from upwell.ground.clock import Deadline
from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Discarded, StoreRecall
from upwell.testing import ManualClock

OURS, THEIRS = "ours", "theirs"
THEIR_SCOPE = Scope(tenant=THEIRS)
KETTLE = Memory(
    text="The kettle boils", id="k", paths=("src/kettle.py",), triggers=("error:1",), project="/a"
)
RULE = Memory(text="Never lift the kettle's lid", id="rule", pinned=True)
QUERY = Query(texts=("kettle lid",), paths=("src/kettle.py",), triggers=("error:1",))
Pair = tuple[TenantStore, TenantStore]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=sorted(TENANTS))
async def pair(request, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Pair]:
    open_tenant, close = TENANTS[request.param](tmp_path, clock)
    yield open_tenant(OURS), open_tenant(THEIRS)
    await close()


async def found(store: TenantStore, scope: Scope) -> set[str]:
    query = replace(QUERY, scope=scope)
    hits = (await StoreRecall(store).search(query, Deadline.after(30.0))).hits
    return {hit.memory.id for hit in hits}


async def everything_in(store: TenantStore) -> dict[str, object]:
    return {
        "list": await store.list(Scope()),
        "pinned": list(await store.pinned(Scope())),
        "trash": await store.trash(),
        "discarded": await store.discarded(),
        "stamps": await store.stamps(limit=10),
        "superseded": await store.superseded(["k", "rule"]),
        "words": await store.word_counts(["kettle"]),
        "ping": (await store.ping()).detail,
        "found": await found(store, Scope()),
    }


async def test_nothing_of_another_tenant_is_read(pair: Pair) -> None:
    ours, theirs = pair
    empty = await everything_in(theirs)
    newer = Memory(text="The kettle boils twice", id="k2", supersedes="k")
    deleted = Memory(text="The kettle is gone", id="gone")
    added = await ours.add([KETTLE, RULE, newer, deleted])
    await ours.delete("gone")
    assert not any(entry.duplicates for entry in added[:2])
    assert await everything_in(theirs) == empty
    assert await theirs.get("k") is None
    assert await theirs.get_many(["k", "rule"]) == []
    assert not (await theirs.candidates(QUERY, Deadline.after(30.0))).candidates


async def test_the_tenant_of_a_scope_or_a_memory_is_replaced(pair: Pair) -> None:
    ours, theirs = pair
    empty = await everything_in(theirs)
    await ours.add([replace(KETTLE, tenant=THEIRS), replace(RULE, tenant=THEIRS)])
    await ours.update(replace(KETTLE, text="The kettle sings", tenant=THEIRS))
    for scope in (Scope(), THEIR_SCOPE):
        assert {memory.tenant for memory in await ours.list(scope)} == {OURS}
        assert [rule.tenant for rule in await ours.pinned(scope)] == [OURS]
        assert await found(ours, scope) == {"k"}
    assert await everything_in(theirs) == empty


async def test_nothing_of_another_tenant_is_changed(pair: Pair, clock: ManualClock) -> None:
    ours, theirs = pair
    await ours.add([KETTLE, RULE, Memory(text="gone", id="gone")])
    await ours.add([Memory(text="short", id="short", expires_at=clock.now() + 1)])
    await ours.delete("gone")
    clock.advance(90 * 86_400)
    before = await everything_in(ours)
    with pytest.raises(UsageError):
        await theirs.update(replace(KETTLE, text="changed", tenant=OURS))
    assert not await theirs.delete("k")
    assert not await theirs.restore("gone")
    assert await theirs.purge("k") == 0
    assert await theirs.purge("gone") == 0
    assert await theirs.purge() == 0
    assert await everything_in(ours) == before
    await theirs.add([replace(KETTLE, text="The kettle is theirs", tenant=OURS)])
    (rule,) = await ours.get_many(["rule"])
    await theirs.discard([Discarded(rule, clock.now())])
    assert await everything_in(ours) == before
    assert [memory.tenant for memory in await theirs.trash()] == [THEIRS]
    assert await theirs.restore("rule")
    assert {memory.tenant for memory in await theirs.list(Scope())} == {THEIRS}
    assert await everything_in(ours) == before
    assert await ours.purge() == 2


async def test_equal_memories_of_two_tenants_are_no_duplicates(pair: Pair) -> None:
    ours, theirs = pair
    await ours.add([replace(KETTLE, id="first")])
    (added,) = await theirs.add([replace(KETTLE, id="second")])
    assert added.duplicates == ()
