"""What every `Shelf` must do, over the one on disk and the one in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.db import open_database
from upwell.ground.shelf import OWNER, MemoryShelf, Options, Shelf, SqliteShelf
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000.0)


@pytest.fixture(params=["sqlite", "memory"])
async def shelf(request, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Shelf]:
    options = Options(max_bytes={"capped": 110_000})
    if request.param == "memory":
        yield MemoryShelf(options=options, clock=clock)
        return
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    yield SqliteShelf(database, options=options, clock=clock)
    await database.aclose()


async def test_what_was_put_is_there_until_its_time_is_up(shelf: Shelf, clock: ManualClock) -> None:
    await shelf.put("k", {"a": b"1", "b": b""}, ttl_seconds=10)
    found = await shelf.get("k", ["a", "b", "missing"])
    assert {key: item.value for key, item in found.items()} == {"a": b"1", "b": b""}
    clock.advance(10)
    assert await shelf.get("k", ["a"]) == {}


async def test_kinds_do_not_know_each_other(shelf: Shelf) -> None:
    await shelf.put("one", {"a": b"1"}, ttl_seconds=10)
    assert await shelf.get("two", ["a"]) == {}
    assert await shelf.drop("two") == 0


async def test_put_again_replaces_and_renews(shelf: Shelf, clock: ManualClock) -> None:
    await shelf.put("k", {"a": b"1"}, ttl_seconds=10)
    clock.advance(6)
    await shelf.put("k", {"a": b"2"}, ttl_seconds=10)
    clock.advance(6)
    assert (await shelf.get("k", ["a"]))["a"].value == b"2"


async def test_touch_renews_what_is_alive_only(shelf: Shelf, clock: ManualClock) -> None:
    await shelf.put("k", {"a": b"1"}, ttl_seconds=10)
    clock.advance(6)
    assert await shelf.touch("k", "a", ttl_seconds=10) is True
    clock.advance(6)
    assert await shelf.touch("k", "a", ttl_seconds=10) is True
    clock.advance(11)
    assert await shelf.touch("k", "a", ttl_seconds=10) is False
    assert await shelf.touch("k", "never", ttl_seconds=10) is False


async def test_numbers_add_up_and_start_anew_when_expired(shelf: Shelf, clock: ManualClock) -> None:
    await shelf.incr("k", {"a": 2, "b": 1}, ttl_seconds=10)
    await shelf.incr("k", {"a": 3}, ttl_seconds=10)
    assert (await shelf.get("k", ["a"]))["a"].number == 5
    clock.advance(11)
    await shelf.incr("k", {"a": 1}, ttl_seconds=10)
    assert (await shelf.get("k", ["a"]))["a"].number == 1


async def test_scan_gives_a_prefix_oldest_first_and_takes_it_literally(
    shelf: Shelf, clock: ManualClock
) -> None:
    for key in ("p%b", "p%a", "px", "q"):
        await shelf.put("k", {key: b""}, ttl_seconds=10)
        clock.advance(1)
    assert [item.key for item in await shelf.scan("k", "p%")] == ["p%b", "p%a"]
    assert [item.key for item in await shelf.scan("k")] == ["p%b", "p%a", "px", "q"]


async def test_drop_removes_a_prefix(shelf: Shelf) -> None:
    await shelf.put("k", {"aa": b"", "ab": b"", "b": b""}, ttl_seconds=10)
    assert await shelf.drop("k", "a") == 2
    assert [item.key for item in await shelf.scan("k")] == ["b"]
    assert await shelf.drop("k") == 1


async def test_expire_removes_what_has_had_its_time(shelf: Shelf, clock: ManualClock) -> None:
    await shelf.put("k", {"short": b""}, ttl_seconds=1)
    await shelf.put("k", {"long": b""}, ttl_seconds=100)
    clock.advance(2)
    assert await shelf.expire() == 1
    assert await shelf.expire() == 0
    assert [item.key for item in await shelf.scan("k")] == ["long"]


async def test_a_capped_kind_loses_its_oldest_first(shelf: Shelf, clock: ManualClock) -> None:
    for key in ("a", "b", "c", "d"):
        await shelf.put("capped", {key: b"x" * 30_000}, ttl_seconds=100)
        clock.advance(1)
    assert [item.key for item in await shelf.scan("capped")] == ["b", "c", "d"]


async def test_keys_of_any_kind(shelf: Shelf) -> None:
    for key in ("", "😀", "a\0b", "x" * 5000, "'; DROP TABLE shelf;--"):
        await shelf.put("k", {key: b"v"}, ttl_seconds=10)
        assert (await shelf.get("k", [key]))[key].value == b"v"


async def test_nothing_asked_is_nothing_given(shelf: Shelf) -> None:
    assert await shelf.get("k", []) == {}
    assert (await shelf.ping()).ok
