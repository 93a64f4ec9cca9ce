"""The number of HTTP sessions in a process, and the order in which they end."""

import pytest

from upwell.gateway.clients import Audience
from upwell.gateway.front import http
from upwell.gateway.front.http import HttpSession, HttpSessions
from upwell.gateway.front.streams import BadRequest
from upwell.ground.types.rpc import OWNER, Principal
from upwell.testing import ManualClock

ADA = Principal("ada")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def front(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> HttpSessions:
    monkeypatch.setattr(http, "MAX_SESSIONS", 4)
    monkeypatch.setattr(http, "MAX_SESSIONS_EACH", 2)
    return HttpSessions(Audience(), clock)


def is_held(front: HttpSessions, held: HttpSession) -> bool:
    return front.find(held.session.id, held.session.principal) is held


def test_at_the_limit_the_principals_longest_idle_session_ends(
    front: HttpSessions, clock: ManualClock
) -> None:
    mine = front.open(OWNER)
    first = front.open(ADA)
    clock.advance(1)
    second = front.open(ADA)
    clock.advance(1)
    assert is_held(front, first), "it is not the quietest any more"
    third = front.open(ADA)
    held = [is_held(front, one) for one in (mine, first, second, third)]
    assert held == [True, True, False, True]


def test_a_busy_session_is_not_ended(front: HttpSessions) -> None:
    for held in (front.open(ADA), front.open(ADA)):
        held.running[b"1"] = None
    with pytest.raises(BadRequest):
        front.open(ADA)
    assert is_held(front, front.open(OWNER))


def test_a_session_idle_for_an_hour_makes_room_for_anybody(
    front: HttpSessions, clock: ManualClock
) -> None:
    old = front.open(ADA)
    clock.advance(http.IDLE_SECONDS + 1)
    front.open(OWNER)
    assert not is_held(front, old)


def test_a_session_belongs_to_the_process_and_the_principal_that_opened_it(
    front: HttpSessions, clock: ManualClock
) -> None:
    opened = front.open(ADA)
    assert front.find(opened.session.id, OWNER) is None
    assert front.find(opened.session.id, Principal("ada", ("work",))) is None, "her token changed"
    assert HttpSessions(Audience(), clock).find(opened.session.id, ADA) is None
    front.close()
    assert front.find(opened.session.id, ADA) is None


def test_a_session_in_use_outlives_its_first_hour(front: HttpSessions, clock: ManualClock) -> None:
    opened = front.open(ADA)
    for _ in range(4):
        clock.advance(http.IDLE_SECONDS * 0.6)
        assert is_held(front, opened)
