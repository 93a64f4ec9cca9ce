"""The contract of every `SessionState`."""

from collections.abc import AsyncIterator

import pytest
from tests.postgres import cluster

from upwell.ground.postgres.connection import Postgres
from upwell.ground.postgres.ttl_store import PostgresTtlStore
from upwell.ground.session_state import LocalSessionState, SessionState, StoredSessionState
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000.0)


@pytest.fixture(params=["local", "postgres"])
async def state(request, clock: ManualClock) -> AsyncIterator[SessionState]:
    if request.param == "local":
        yield LocalSessionState(clock=clock)
        return
    postgres = Postgres(cluster().emptied())
    yield StoredSessionState(PostgresTtlStore(postgres, clock=clock, seconds=30.0), clock=clock)
    await postgres.aclose()


async def test_a_value_lives_until_it_expires(state: SessionState, clock: ManualClock) -> None:
    await state.put("s", "rate", "a", b"1", ttl_seconds=10)
    clock.advance(9)
    assert await state.get("s", "rate", "a") == b"1"
    clock.advance(1)
    assert await state.get("s", "rate", "a") is None
    assert await state.scan("s", "rate") == {}


async def test_writing_again_replaces_and_renews(state: SessionState, clock: ManualClock) -> None:
    await state.put("s", "rate", "a", b"1", ttl_seconds=10)
    clock.advance(6)
    await state.put("s", "rate", "a", b"2", ttl_seconds=10)
    clock.advance(6)
    assert await state.get("s", "rate", "a") == b"2"


async def test_sessions_kinds_and_keys_are_separate(state: SessionState) -> None:
    await state.put("s", "rate", "a", b"1", ttl_seconds=10)
    for session, kind, key in (("s2", "rate", "a"), ("s", "late", "a"), ("s", "rate", "ab")):
        assert await state.get(session, kind, key) is None
        assert await state.delete(session, kind, key) is False
    assert await state.get("s", "rate", "a") == b"1"


async def test_a_scan_returns_one_kind_of_one_session_oldest_first(
    state: SessionState, clock: ManualClock
) -> None:
    for key in ("b", "a", "c"):
        await state.put("s", "rate", key, key.encode(), ttl_seconds=10)
        clock.advance(0.1)
    await state.put("s", "rate", "b", b"again", ttl_seconds=10)
    await state.put("other", "rate", "x", b"", ttl_seconds=10)
    await state.put("s", "late", "y", b"", ttl_seconds=10)
    assert list((await state.scan("s", "rate")).items()) == [
        ("a", b"a"),
        ("c", b"c"),
        ("b", b"again"),
    ]


async def test_one_of_two_deletions_succeeds_and_prefixes_stay(state: SessionState) -> None:
    await state.put("s", "rate", "a", b"1", ttl_seconds=10)
    await state.put("s", "rate", "ab", b"2", ttl_seconds=10)
    assert await state.delete("s", "rate", "a") is True
    assert await state.delete("s", "rate", "a") is False
    assert await state.scan("s", "rate") == {"ab": b"2"}


async def test_compare_and_set_needs_the_expected_value(
    state: SessionState, clock: ManualClock
) -> None:
    async def swap(value: bytes, expected: bytes | None) -> bool:
        return await state.compare_and_set(
            "s", "call", "", value, expected=expected, ttl_seconds=10
        )

    assert await swap(b"1", None)
    assert not await swap(b"2", None)
    assert not await swap(b"2", b"0")
    assert await state.get("s", "call") == b"1"
    assert await swap(b"2", b"1")
    clock.advance(10)
    assert not await swap(b"3", b"2")
    assert await swap(b"3", None)


async def test_a_process_remembers_a_bounded_number_of_sessions() -> None:
    clock = ManualClock()
    state = LocalSessionState(max_sessions=2, clock=clock)
    for session in ("old", "newer", "newest"):
        await state.put(session, "rate", "", b"1", ttl_seconds=10)
    assert await state.get("old", "rate") is None
    assert await state.get("newer", "rate") == b"1"
    await state.put("alone", "late", "", b"1", ttl_seconds=10)
    assert await state.get("newer", "rate") == b"1"
