"""A gateway joins the session that hooks of the same agent record."""

from upwell.ground.host_sessions import LOOK_SECONDS, HostSessions, Joined
from upwell.ground.ttl_store import MemoryTtlStore
from upwell.testing import ManualClock

AGENT, OTHER = 4_000_000, 4_000_001


async def test_a_gateway_joins_the_session_of_its_agent():
    clock = ManualClock()
    sessions = HostSessions(MemoryTtlStore())
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
    sessions = HostSessions(MemoryTtlStore())
    await sessions.record(OTHER, "/elsewhere", "theirs")
    assert await Joined(sessions, AGENT, "/repo", clock).session("own") == "own"
    assert await Joined(sessions, AGENT, "/elsewhere", clock).session("own") == "theirs"
