"""The number of HTTP sessions in a process, the order in which they end, and how another process
continues them.
"""

from collections.abc import Mapping, Sequence

import pytest

from upwell.gateway.clients import Audience
from upwell.gateway.front import sessions
from upwell.gateway.front.headers import BadRequest
from upwell.gateway.front.sessions import HttpSession, HttpSessions
from upwell.ground.errors import StoreError
from upwell.ground.session_state import LocalSessionState, StoredSessionState
from upwell.ground.ttl_store import Item, MemoryTtlStore
from upwell.ground.types.principal import OWNER, Principal
from upwell.testing import ManualClock

ADA = Principal("ada")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def state(clock: ManualClock) -> LocalSessionState:
    return LocalSessionState(clock=clock)


@pytest.fixture
def front(
    clock: ManualClock, state: LocalSessionState, monkeypatch: pytest.MonkeyPatch
) -> HttpSessions:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 4)
    monkeypatch.setattr(sessions, "MAX_SESSIONS_EACH", 2)
    return HttpSessions(Audience(), state, clock)


async def is_held(front: HttpSessions, held: HttpSession) -> bool:
    return await front.find(held.session.id, held.session.principal) is held


async def test_at_the_limit_the_principals_longest_idle_session_ends(
    front: HttpSessions, clock: ManualClock
) -> None:
    mine = await front.open(OWNER)
    first = await front.open(ADA)
    clock.advance(1)
    second = await front.open(ADA)
    clock.advance(1)
    assert await is_held(front, first), "it is not the quietest any more"
    third = await front.open(ADA)
    held = [await is_held(front, one) for one in (mine, first, second, third)]
    assert held == [True, True, False, True]


async def test_a_busy_session_is_not_ended(front: HttpSessions) -> None:
    for held in (await front.open(ADA), await front.open(ADA)):
        held.running[b"1"] = None
    with pytest.raises(BadRequest):
        await front.open(ADA)
    assert await is_held(front, await front.open(OWNER))


async def test_a_session_idle_for_an_hour_makes_room_for_anybody(
    front: HttpSessions, clock: ManualClock
) -> None:
    old = await front.open(ADA)
    clock.advance(sessions.IDLE_SECONDS + 1)
    await front.open(OWNER)
    assert not await is_held(front, old)


async def test_another_process_goes_on_with_a_session_of_the_same_principal(
    front: HttpSessions, state: LocalSessionState, clock: ManualClock
) -> None:
    opened = await front.open(ADA)
    opened.session.capabilities, opened.session.log_level = b'{"sampling":{}}', "warning"
    opened.session.host = "claude"
    await front.record(opened)
    front.close()
    other = HttpSessions(Audience(), state, clock)
    name = opened.session.id
    assert await other.find(name, OWNER) is None
    assert await other.find(name, Principal("ada", ("work",))) is None, "her token changed"
    found = await other.find(name, ADA)
    assert found is not None
    assert (found.session.id, found.session.principal) == (name, ADA)
    assert found.session.capabilities == b'{"sampling":{}}'
    assert found.session.log_level == "warning"
    assert found.session.host == "claude"
    assert found.session.ready.is_set()
    assert await other.find(name, ADA) is found


async def test_a_session_that_ended_is_nobodys(
    front: HttpSessions, state: LocalSessionState, clock: ManualClock
) -> None:
    opened = await front.open(ADA)
    await front.record(opened)
    await front.end(opened)
    assert await front.find(opened.session.id, ADA) is None
    assert await HttpSessions(Audience(), state, clock).find(opened.session.id, ADA) is None


async def test_a_session_in_use_outlives_its_first_hour(
    front: HttpSessions, state: LocalSessionState, clock: ManualClock
) -> None:
    opened = await front.open(ADA)
    await front.record(opened)
    for _ in range(4):
        clock.advance(sessions.IDLE_SECONDS * 0.6)
        assert await is_held(front, opened)
    other = HttpSessions(Audience(), state, clock)
    assert await other.find(opened.session.id, ADA) is not None


class Broken(LocalSessionState):
    async def get(self, session: str, kind: str, key: str = "") -> bytes | None:
        raise RuntimeError("out of reach")

    async def put(self, *args: object, **more: object) -> None:
        raise RuntimeError("out of reach")


async def test_a_state_out_of_reach_costs_only_other_processes_sessions(clock: ManualClock) -> None:
    front = HttpSessions(Audience(), Broken(clock=clock), clock)
    opened = await front.open(ADA)
    await front.record(opened)
    assert await is_held(front, opened)
    assert await front.find("elsewhere", ADA) is None


class Lost(MemoryTtlStore):
    """A shared store that fails while `is_lost`."""

    is_lost = False

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        if self.is_lost:
            raise StoreError("out of reach")
        return await super().get(kind, keys)

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        if self.is_lost:
            raise StoreError("out of reach")
        await super().put(kind, values, ttl_seconds=ttl_seconds)


async def test_while_the_shared_state_is_lost_every_session_goes_on(clock: ManualClock) -> None:
    store = Lost(clock=clock)
    one, other = (
        HttpSessions(Audience(), StoredSessionState(store, clock=clock), clock) for _ in range(2)
    )
    before = await one.open(ADA)
    await one.record(before)
    store.is_lost = True
    clock.advance(sessions.CHECK_SECONDS + 1)
    assert await is_held(one, before)
    during = await one.open(ADA)
    await one.record(during)
    for name in (before.session.id, during.session.id):
        found = await other.find(name, ADA)
        assert found is not None
        assert found.session.ready.is_set()
        assert await other.find(name, OWNER) is None
    assert await other.find("of-somebody-else", ADA) is None
    store.is_lost = False
    clock.advance(sessions.CHECK_SECONDS + 1)
    assert await is_held(one, before)
    assert await is_held(one, during)
    third = HttpSessions(Audience(), StoredSessionState(store, clock=clock), clock)
    assert await third.find(during.session.id, ADA) is not None
    await one.end(during)
    clock.advance(sessions.CHECK_SECONDS + 1)
    assert await third.find(during.session.id, ADA) is None
