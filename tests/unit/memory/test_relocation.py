"""Moves between the stores: every field, in both directions, interrupted and repeated."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.contracts.stores import STORES

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.types.memory import Memory, Provenance, Query, Scope, Trust
from upwell.memory.base import Added, StoreRecall
from upwell.memory.relocation import BATCH, Movable, MoveJournal, Relocation
from upwell.testing import ManualClock

FULL = Memory(
    text="the kettle\0 is red \ud83d\ud83d and \N{SNOWMAN}",
    id="full",
    namespace="team/kitchen",
    tags=("a", "b c", '"'),
    paths=("src/kettle.py",),
    symbols=("Kettle.boil",),
    triggers=("error:1",),
    occurrences=7,
    project="/srv/kitchen",
    source="notes/kettle.md",
    lines=(3, 9),
    provenance=Provenance(door="hook", server="s", tool="t", session="x\0y"),
    trust=Trust.AGENT,
    supersedes="m0001",
    expires_at=1e11,
    created_at=100.25,
    updated_at=200.125,
    viewed_at=300.5,
)
PINNED = Memory(text="never boil it dry", id="rule", pinned=True, created_at=1.0, updated_at=2.0)


def nobody(done: int, total: int) -> None:
    pass


def many(count: int) -> list[Memory]:
    return [
        Memory(text=f"the kettle number {n}", id=f"m{n:04}", created_at=float(n))
        for n in range(count)
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite to postgres", "postgres to sqlite"])
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[list]:
    names = request.param.split(" to ")
    opened = [STORES[name](tmp_path, clock) for name in names]
    yield [store for store, _ in opened]
    for _, close in opened:
        await close()


def moving(stores: Sequence[Movable], tmp_path: Path) -> Relocation:
    return Relocation(stores[0], stores[1], MoveJournal(tmp_path / "journal.jsonl"))


async def everything(store) -> dict[str, Memory]:
    return {memory.id: memory for memory in await store.list(Scope(), limit=10_000)}


async def test_every_field_arrives(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add([*many(3), FULL, PINNED])
    verified = await moving(stores, tmp_path).run(nobody)
    assert (verified.equal, verified.different) == (5, ())
    there = await everything(target)
    here = await everything(source)
    for id in ("m0002", "rule"):
        assert there[id] == here[id]
    full, original = there["full"], here["full"]
    sound = replace(original.provenance, session=full.provenance.session)
    assert replace(original, provenance=sound) == full
    assert [rule.id for rule in await target.pinned(Scope())] == ["rule"]
    hits = await StoreRecall(target).search(Query(texts=("kettle red",)), Deadline.after(30))
    assert "full" in {hit.memory.id for hit in hits.hits}
    superseded = await target.superseded(["m0001"])
    assert superseded == {"m0001": "full"}


async def test_a_plan_changes_nothing(stores, tmp_path: Path) -> None:
    await stores[0].add(many(3))
    plan = await moving(stores, tmp_path).plan()
    assert (plan.present, len(plan.copy), plan.is_done) == (3, 3, False)
    assert await everything(stores[1]) == {}
    assert not (tmp_path / "journal.jsonl").exists()


class Breaking:
    """A store whose `add` works `additions` times and then fails: before it stores the memories, or
    `after` it has."""

    def __init__(self, store, additions: int, *, after: bool) -> None:
        self._store = store
        self._left = additions
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        self._left -= 1
        if self._left < 0 and not self._after:
            raise StoreError("gone")
        added = await self._store.add(memories)
        if self._left < 0:
            raise StoreError("gone before it answered")
        return added


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
async def test_an_interrupted_move_continues(stores, tmp_path: Path, after: bool) -> None:
    source, target = stores
    count = 3 * BATCH + 7
    await source.add(many(count))
    for additions in (0, 1, 1):
        broken = Breaking(target, additions, after=after)
        with pytest.raises(StoreError, match="gone"):
            await moving([source, broken], tmp_path).run(nobody)
    verified = await moving(stores, tmp_path).run(nobody)
    assert (verified.equal, verified.different) == (count, ())
    assert (await everything(target)).keys() == (await everything(source)).keys()
    counts = await target.word_counts(["kettle"])
    assert (counts.memories, counts.holding["kettle"]) == (count, count)


async def test_a_torn_line_of_the_journal_is_copied_again(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add(many(3))
    await moving(stores, tmp_path).run(nobody)
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().rstrip()[:-4])
    assert len((await moving(stores, tmp_path).plan()).copy) == 1
    assert (await moving(stores, tmp_path).run(nobody)).equal == 3
    assert (await target.word_counts(["kettle"])).memories == 3
    assert (await moving(stores, tmp_path).plan()).is_done


@asynccontextmanager
async def busy(source, write: Callable) -> AsyncIterator[None]:
    """Let `write` run once, between two batches of a move."""
    read = source.get_many
    calls = 0

    async def reading(ids: Sequence[str]) -> Sequence[Memory]:
        nonlocal calls
        calls += 1
        if calls == 2:
            await write()
        return await read(ids)

    source.get_many = reading
    try:
        yield
    finally:
        del source.get_many


async def test_what_is_written_meanwhile_moves_too(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add(many(3 * BATCH))

    async def write() -> None:
        await source.add([Memory(text="a late kettle", id="late", created_at=5e5)])
        await source.delete("m0000")
        await source.update(replace((await source.get("m0001")), text="the kettle is blue"))

    async with busy(source, write):
        verified = await moving(stores, tmp_path).run(nobody)
    assert verified.different == ()
    there = await everything(target)
    assert there == await everything(source)
    assert "late" in there
    assert "m0000" not in there
    assert there["m0001"].text == "the kettle is blue"
    assert [item.memory.id for item in await target.discarded()] == ["m0000"]
    assert [item.deleted_at for item in await target.discarded()] == [
        item.deleted_at for item in await source.discarded()
    ]


async def test_the_trash_moves_and_can_be_restored(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add([FULL, *many(2)])
    await source.delete("full")
    await moving(stores, tmp_path).run(nobody)
    assert await target.get("full") is None
    assert await target.restore("full")
    assert (await target.get("full")).text == FULL.text


async def test_a_restored_memory_is_copied_again(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add(many(2))
    await moving(stores, tmp_path).run(nobody)
    await source.delete("m0000")
    await moving(stores, tmp_path).run(nobody)
    assert await target.get("m0000") is None
    await source.restore("m0000")
    await moving(stores, tmp_path).run(nobody)
    assert await target.get("m0000") is not None


async def test_changes_at_the_target_stay(stores, tmp_path: Path, clock: ManualClock) -> None:
    source, target = stores
    await source.add(many(3))
    await moving(stores, tmp_path).run(nobody)
    clock.advance(60)
    await target.delete("m0000")
    await target.update(replace((await target.get("m0001")), text="ours", updated_at=None))
    verified = await moving(stores, tmp_path).run(nobody)
    assert await target.get("m0000") is None
    assert (await target.get("m0001")).text == "ours"
    assert (verified.equal, verified.deleted_there, verified.different) == (1, 1, ())
    assert verified.changed_there == 1
    again = Relocation(*stores, MoveJournal(tmp_path / "another"))
    plan = await again.plan()
    assert (plan.newer, plan.deleted) == (["m0001"], ["m0000"])


async def test_a_damaged_copy_is_found_and_mended(stores, tmp_path: Path) -> None:
    source, target = stores
    await source.add(many(3))
    await moving(stores, tmp_path).run(nobody)
    await target.add([replace((await target.get("m0001")), text="damaged")])
    assert (await moving(stores, tmp_path).run(nobody)).different == ("m0001",)
    assert (await moving(stores, tmp_path).run(nobody)).different == ()
    assert (await target.get("m0001")).text == "the kettle number 1"


async def test_memories_from_elsewhere_are_added_once(stores, tmp_path: Path) -> None:
    notes = [Memory(text="a note about the lid", id="note-1", created_at=1.0)]
    assert await moving(stores, tmp_path).add_once(notes) == 1
    await stores[1].delete("note-1")
    assert await moving(stores, tmp_path).add_once(notes) == 0
    assert await stores[1].get("note-1") is None
