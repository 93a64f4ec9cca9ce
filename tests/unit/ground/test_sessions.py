"""A gateway takes part in the session that hooks of the same agent tell of."""

from upwell.ground.sessions import LOOK_SECONDS, HostSessions, Joined
from upwell.ground.shelf import MemoryShelf
from upwell.testing import ManualClock

AGENT, OTHER = 4_000_000, 4_000_001


async def test_the_agents_session_is_joined_and_followed():
    clock = ManualClock()
    sessions = HostSessions(MemoryShelf())
    joined = Joined(sessions, AGENT, "/repo", clock)
    assert await joined.session("own") == "own"
    await sessions.record(AGENT, None, "first")
    assert await joined.session("own") == "own"
    clock.advance(LOOK_SECONDS)
    assert await joined.session("own") == "first"
    await sessions.record(AGENT, "/repo", "second")
    clock.advance(LOOK_SECONDS)
    assert await joined.session("own") == "second"


async def test_another_agents_session_is_not_joined():
    clock = ManualClock()
    sessions = HostSessions(MemoryShelf())
    await sessions.record(OTHER, "/elsewhere", "theirs")
    assert await Joined(sessions, AGENT, "/repo", clock).session("own") == "own"
    assert await Joined(sessions, AGENT, "/elsewhere", clock).session("own") == "theirs"
