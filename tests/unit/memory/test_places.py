"""Places: found by trigger, in their own project, until they expire."""

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.ledger import TtlStore
from upwell.ground.types.memory import Hit, Memory, Query, Scope
from upwell.memory.places import MAX_CANDIDATES, TTL_SECONDS, Places
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def places(clock: ManualClock) -> Places:
    return Places(TtlStore(clock=clock))


def place(path: str, project: str = "/x", at: float = 1.0) -> Memory:
    text = f"`oven.py` is at `{path}`."
    triggers = ("file:kitchen/oven.py", "file:oven.py")
    return Memory(
        text=text,
        paths=(path,),
        symbols=("bake",),
        triggers=triggers,
        project=project,
        updated_at=at,
    )


async def found(places: Places, *triggers: str, project: str | None = "/x") -> list[Hit]:
    query = Query(texts=("ignored",), triggers=triggers, scope=Scope(project=project), limit=20)
    return list((await places.search(query, Deadline.after(1.0))).hits)


async def test_each_trigger_finds_the_place_with_its_conditions(places: Places) -> None:
    await places.keep([place("src/oven.py")])
    (hit,) = await found(places, "file:oven.py", "file:unknown.py")
    assert (hit.trigger, hit.memory.paths, hit.memory.symbols) == (
        "file:oven.py",
        ("src/oven.py",),
        ("bake",),
    )
    assert [hit.memory.project for hit in await found(places, "file:kitchen/oven.py")] == ["/x"]


async def test_another_project_finds_nothing(places: Places) -> None:
    await places.keep([place("src/oven.py")])
    assert await found(places, "file:oven.py", project="/y") == []
    assert await found(places, "file:oven.py", project=None) == []


async def test_the_latest_places_of_a_trigger_are_kept(places: Places) -> None:
    for at in range(MAX_CANDIDATES + 2):
        await places.keep([place(f"src/{at}/oven.py", at=float(at))])
    paths = [hit.memory.paths[0] for hit in await found(places, "file:oven.py")]
    assert paths == ["src/4/oven.py", "src/3/oven.py", "src/2/oven.py"]


async def test_a_place_found_again_stays(places: Places, clock: ManualClock) -> None:
    await places.keep([place("src/oven.py")])
    clock.advance(TTL_SECONDS - 1)
    await places.keep([place("src/oven.py", at=2.0)])
    clock.advance(2)
    assert len(await found(places, "file:oven.py")) == 1
    clock.advance(TTL_SECONDS)
    assert await found(places, "file:oven.py") == []


async def test_its_id_resolves(places: Places) -> None:
    await places.keep([place("src/oven.py"), place("lib/oven.py", at=2.0)])
    for hit in await found(places, "file:oven.py"):
        stored = await places.get(hit.memory.id)
        assert stored is not None
        assert stored.text == hit.memory.text
    for unknown in ("place:0.0", "place:x", "m1", f"{hit.memory.id}9"):
        assert await places.get(unknown) is None


async def test_an_id_still_names_its_place_after_a_later_one_is_found(places: Places) -> None:
    await places.keep([place("src/oven.py")])
    (hit,) = await found(places, "file:oven.py")
    await places.keep([place("lib/oven.py", at=2.0)])
    known = await places.get(hit.memory.id)
    assert known is not None
    assert known.paths == ("src/oven.py",)
