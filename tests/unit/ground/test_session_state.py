"""The short-lived values of sessions."""

from upwell.surface.seen_log import SessionState
from upwell.testing import ManualClock


def test_a_value_lives_until_it_expires_or_is_taken() -> None:
    clock = ManualClock()
    state = SessionState[int](clock=clock)
    state.put("s", 1, key="a", ttl_seconds=10)
    state.put("s", 2, key="b", ttl_seconds=20)
    clock.advance(6)
    state.put("s", 3, key="a", ttl_seconds=10)
    clock.advance(6)
    assert list(state.get("s").items()) == [("b", 2), ("a", 3)]
    assert state.pop("s", "b") == 2
    assert state.pop("s", "b") is None
    clock.advance(4)
    assert (state.get("s"), state.pop("s", "a"), state.pop("other", "a")) == ({}, None, None)


def test_a_process_remembers_a_bounded_number_of_sessions() -> None:
    clock = ManualClock()
    state = SessionState[int](max_sessions=2, clock=clock)
    for session in ("old", "newer", "newest"):
        state.put(session, 1, ttl_seconds=10)
    assert [bool(state.get(session)) for session in ("old", "newer", "newest")] == [
        False,
        True,
        True,
    ]
    clock.advance(10)
    state.put("alone", 1, ttl_seconds=10)
    assert list(state._sessions) == ["alone"]
