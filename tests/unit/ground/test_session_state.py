"""The short-lived values of sessions."""

import pytest

from upwell.ground.session_state import SessionState
from upwell.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000.0)


@pytest.fixture
def state(clock: ManualClock) -> SessionState:
    return SessionState(clock=clock)


def test_a_value_lives_until_it_expires(state: SessionState, clock: ManualClock) -> None:
    state.put("s", "rate", "a", b"1", ttl_seconds=10)
    clock.advance(9)
    assert state.get("s", "rate", "a") == b"1"
    clock.advance(1)
    assert state.get("s", "rate", "a") is None
    assert state.scan("s", "rate") == {}


def test_writing_again_replaces_and_renews(state: SessionState, clock: ManualClock) -> None:
    state.put("s", "rate", "a", b"1", ttl_seconds=10)
    clock.advance(6)
    state.put("s", "rate", "a", b"2", ttl_seconds=10)
    clock.advance(6)
    assert state.get("s", "rate", "a") == b"2"


def test_sessions_kinds_and_keys_are_separate(state: SessionState) -> None:
    state.put("s", "rate", "a", b"1", ttl_seconds=10)
    for session, kind, key in (("s2", "rate", "a"), ("s", "late", "a"), ("s", "rate", "ab")):
        assert state.get(session, kind, key) is None
        assert state.delete(session, kind, key) is False
    assert state.get("s", "rate", "a") == b"1"


def test_a_scan_returns_one_kind_of_one_session_oldest_first(
    state: SessionState, clock: ManualClock
) -> None:
    for key in ("b", "a", "c"):
        state.put("s", "rate", key, key.encode(), ttl_seconds=10)
        clock.advance(0.1)
    state.put("s", "rate", "b", b"again", ttl_seconds=10)
    state.put("other", "rate", "x", b"", ttl_seconds=10)
    state.put("s", "late", "y", b"", ttl_seconds=10)
    assert list((state.scan("s", "rate")).items()) == [
        ("a", b"a"),
        ("c", b"c"),
        ("b", b"again"),
    ]


def test_one_of_two_deletions_succeeds_and_prefixes_stay(state: SessionState) -> None:
    state.put("s", "rate", "a", b"1", ttl_seconds=10)
    state.put("s", "rate", "ab", b"2", ttl_seconds=10)
    assert state.delete("s", "rate", "a") is True
    assert state.delete("s", "rate", "a") is False
    assert state.scan("s", "rate") == {"ab": b"2"}


def test_a_process_remembers_a_bounded_number_of_sessions() -> None:
    clock = ManualClock()
    state = SessionState(max_sessions=2, clock=clock)
    for session in ("old", "newer", "newest"):
        state.put(session, "rate", "", b"1", ttl_seconds=10)
    assert state.get("old", "rate") is None
    assert state.get("newer", "rate") == b"1"
    state.put("alone", "late", "", b"1", ttl_seconds=10)
    assert state.get("newer", "rate") == b"1"
