"""What a `TtlStore` promises, in a file and in memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upwell.ground.ledger import OWNER, Entries, TtlStore
from upwell.ground.sqlite.database import open_database
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000.0)


@pytest.fixture(params=["sqlite", "memory"])
async def ttl_store(request, tmp_path: Path, clock: ManualClock) -> AsyncIterator[TtlStore]:
    caps = {"capped": 110_000}
    if request.param == "memory":
        yield TtlStore(caps=caps, clock=clock)
        return
    database = open_database(tmp_path / "ledger.db", [OWNER], synchronous="NORMAL")
    yield TtlStore(database, caps=caps, clock=clock)
    await database.aclose()


async def test_a_value_is_present_until_it_expires(ttl_store: TtlStore, clock: ManualClock) -> None:
    await ttl_store.put("k", {"a": b"1", "b": b""}, ttl_seconds=10)
    match = await ttl_store.get("k", ["a", "b", "missing"])
    assert {key: item.value for key, item in match.items()} == {"a": b"1", "b": b""}
    clock.advance(10)
    assert await ttl_store.get("k", ["a"]) == {}


async def test_kinds_are_separate(ttl_store: TtlStore) -> None:
    await ttl_store.put("one", {"a": b"1"}, ttl_seconds=10)
    assert await ttl_store.get("two", ["a"]) == {}
    assert await ttl_store.drop("two") == 0


async def test_a_second_put_replaces_the_value_and_renews_it(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.put("k", {"a": b"1"}, ttl_seconds=10)
    clock.advance(6)
    await ttl_store.put("k", {"a": b"2"}, ttl_seconds=10)
    clock.advance(6)
    assert (await ttl_store.get("k", ["a"]))["a"].value == b"2"


async def test_entries_of_several_kinds_are_put_in_one_step(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    long, short = Entries("long", {"a": b"1"}, 20), Entries("short", {"a": b"2", "b": b"3"}, 10)
    await ttl_store.put_all(long, short)
    clock.advance(10)
    assert list(await ttl_store.get("long", ["a"])) == ["a"]
    assert await ttl_store.get("short", ["a", "b"]) == {}


async def test_a_prefix_matches_keys_that_begin_with_it_and_no_others(ttl_store: TtlStore) -> None:
    keys = ["", "s", "s\t", "s\tb", "s\t\U0010ffff!", "s\x08", "s\n", "t", "sé", "S\tb", "%_"]
    await ttl_store.put("k", dict.fromkeys(keys, b"1"), ttl_seconds=10)
    for prefix in ("", "s", "s\t", "sé", "%", "\U0010ffff", "s\t\U0010ffff"):
        matches = sorted(item.key for item in await ttl_store.scan("k", prefix))
        assert matches == sorted(key for key in keys if key.startswith(prefix)), prefix
    assert await ttl_store.drop("k", "s\t") == 3
    assert await ttl_store.drop("k") == len(keys) - 3


async def test_touch_renews_only_a_live_entry(ttl_store: TtlStore, clock: ManualClock) -> None:
    await ttl_store.put("k", {"a": b"1"}, ttl_seconds=10)
    clock.advance(6)
    assert await ttl_store.touch("k", "a", ttl_seconds=10) is True
    clock.advance(6)
    assert await ttl_store.touch("k", "a", ttl_seconds=10) is True
    clock.advance(11)
    assert await ttl_store.touch("k", "a", ttl_seconds=10) is False
    assert await ttl_store.touch("k", "never", ttl_seconds=10) is False


async def test_numbers_add_up_and_restart_once_expired(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.incr("k", {"a": 2, "b": 1}, ttl_seconds=10)
    await ttl_store.incr("k", {"a": 3}, ttl_seconds=10)
    assert (await ttl_store.get("k", ["a"]))["a"].number == 5
    clock.advance(11)
    await ttl_store.incr("k", {"a": 1}, ttl_seconds=10)
    assert (await ttl_store.get("k", ["a"]))["a"].number == 1


async def test_an_increment_brings_nothing_of_an_expired_entry_back(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.put("k", {"a": b"old"}, ttl_seconds=10)
    before = (await ttl_store.get("k", ["a"]))["a"].created_at
    clock.advance(11)
    await ttl_store.incr("k", {"a": 1}, ttl_seconds=10)
    entry = (await ttl_store.get("k", ["a"]))["a"]
    assert (entry.value, entry.number) == (b"", 1)
    assert entry.created_at > before


async def test_scan_lists_a_literal_prefix_oldest_first(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    for key in ("p%b", "p%a", "px", "q"):
        await ttl_store.put("k", {key: b""}, ttl_seconds=10)
        clock.advance(1)
    assert [item.key for item in await ttl_store.scan("k", "p%")] == ["p%b", "p%a"]
    assert [item.key for item in await ttl_store.scan("k")] == ["p%b", "p%a", "px", "q"]


async def test_drop_removes_a_prefix(ttl_store: TtlStore) -> None:
    await ttl_store.put("k", {"aa": b"", "ab": b"", "b": b""}, ttl_seconds=10)
    assert await ttl_store.drop("k", "a") == 2
    assert [item.key for item in await ttl_store.scan("k")] == ["b"]
    assert await ttl_store.drop("k") == 1


async def test_delete_removes_exactly_the_given_keys(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.put("k", {"a": b"", "ab": b"", "abc": b"", "%": b""}, ttl_seconds=10)
    await ttl_store.put("other", {"a": b""}, ttl_seconds=10)
    assert await ttl_store.delete("k", ["a", "%", "missing", "a"]) == 2
    assert sorted(item.key for item in await ttl_store.scan("k")) == ["ab", "abc"]
    assert [item.key for item in await ttl_store.scan("other")] == ["a"]
    clock.advance(10)
    assert await ttl_store.delete("k", ["ab"]) == 0


async def test_compare_and_set_needs_the_expected_value(ttl_store: TtlStore) -> None:
    assert not await ttl_store.compare_and_set("k", "a", b"0", b"1", ttl_seconds=10)
    assert await ttl_store.compare_and_set("k", "a", None, b"1", ttl_seconds=10)
    assert not await ttl_store.compare_and_set("k", "a", None, b"2", ttl_seconds=10)
    assert not await ttl_store.compare_and_set("k", "a", b"", b"2", ttl_seconds=10)
    assert await ttl_store.compare_and_set("k", "a", b"1", b"2", ttl_seconds=10)
    assert (await ttl_store.get("k", ["a"]))["a"].value == b"2"


async def test_compare_and_set_takes_an_expired_entry_as_absent(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.put("k", {"a": b"1"}, ttl_seconds=10)
    clock.advance(10)
    assert not await ttl_store.compare_and_set("k", "a", b"1", b"2", ttl_seconds=10)
    assert await ttl_store.compare_and_set("k", "a", None, b"3", ttl_seconds=10)
    clock.advance(9)
    assert (await ttl_store.get("k", ["a"]))["a"].value == b"3"


async def test_compare_and_set_has_one_winner(ttl_store: TtlStore) -> None:
    outcomes = await asyncio.gather(
        *(
            ttl_store.compare_and_set("k", "lock", None, b"%d" % number, ttl_seconds=10)
            for number in range(20)
        )
    )
    assert outcomes.count(True) == 1
    winner = outcomes.index(True)
    assert (await ttl_store.get("k", ["lock"]))["lock"].value == b"%d" % winner


async def test_compare_and_set_respects_the_cap(ttl_store: TtlStore, clock: ManualClock) -> None:
    for key in ("a", "b", "c", "d"):
        assert await ttl_store.compare_and_set("capped", key, None, b"x" * 30_000, ttl_seconds=100)
        clock.advance(1)
    assert [item.key for item in await ttl_store.scan("capped")] == ["b", "c", "d"]


async def test_put_forgets_the_number_of_an_expired_entry(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    await ttl_store.incr("k", {"a": 4}, ttl_seconds=10)
    await ttl_store.put("k", {"a": b"1"}, ttl_seconds=10)
    assert (await ttl_store.get("k", ["a"]))["a"].number == 4
    clock.advance(10)
    await ttl_store.put("k", {"a": b"2"}, ttl_seconds=10)
    assert (await ttl_store.get("k", ["a"]))["a"].number == 0


async def test_expire_removes_only_expired_entries(ttl_store: TtlStore, clock: ManualClock) -> None:
    await ttl_store.put("k", {"short": b""}, ttl_seconds=1)
    await ttl_store.put("k", {"long": b""}, ttl_seconds=100)
    clock.advance(2)
    assert await ttl_store.expire() == 1
    assert await ttl_store.expire() == 0
    assert [item.key for item in await ttl_store.scan("k")] == ["long"]


async def test_a_capped_kind_evicts_its_oldest_entries(
    ttl_store: TtlStore, clock: ManualClock
) -> None:
    for key in ("a", "b", "c", "d"):
        await ttl_store.put("capped", {key: b"x" * 30_000}, ttl_seconds=100)
        clock.advance(1)
    assert [item.key for item in await ttl_store.scan("capped")] == ["b", "c", "d"]


async def test_any_string_can_be_a_key(ttl_store: TtlStore) -> None:
    for key in ("", "😀", "a\0b", "x" * 5000, "'; DROP TABLE shelf;--"):
        await ttl_store.put("k", {key: b"v"}, ttl_seconds=10)
        assert (await ttl_store.get("k", [key]))[key].value == b"v"


async def test_no_keys_give_no_entries(ttl_store: TtlStore) -> None:
    assert await ttl_store.get("k", []) == {}
    assert await ttl_store.delete("k", []) == 0
    assert (await ttl_store.ping()).ok
