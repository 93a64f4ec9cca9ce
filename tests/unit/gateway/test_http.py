"""The limit of sessions of an HTTP front, and the order in which they end."""

import pytest

from upwell.gateway.clients import Audience
from upwell.gateway.front import http
from upwell.gateway.front.http import BadRequest, HttpFront
from upwell.ground.types.principal import OWNER, Principal
from upwell.testing import ManualClock

ADA = Principal("ada")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def front(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> HttpFront:
    monkeypatch.setattr(http, "MAX_SESSIONS", 4)
    monkeypatch.setattr(http, "MAX_SESSIONS_EACH", 2)
    return HttpFront(None, Audience(lambda: b"{}"), clock)  # type: ignore[arg-type]


def is_held(front: HttpFront, held: http.HttpSession) -> bool:
    try:
        front._session_of({"mcp-session-id": held.session.id}, held.session.principal)
    except BadRequest:
        return False
    return True


async def test_at_the_limit_the_principals_longest_idle_session_ends(
    front: HttpFront, clock: ManualClock
) -> None:
    mine = front._open(OWNER)
    first = front._open(ADA)
    clock.advance(1)
    second = front._open(ADA)
    clock.advance(1)
    assert is_held(front, first), "it is not the quietest any more"
    third = front._open(ADA)
    assert [is_held(front, entry) for entry in (mine, first, second, third)] == [
        True,
        True,
        False,
        True,
    ]


async def test_a_busy_session_is_not_ended(front: HttpFront, clock: ManualClock) -> None:
    for held in (front._open(ADA), front._open(ADA)):
        held.running[b"1"] = None  # type: ignore[assignment]
    with pytest.raises(BadRequest):
        front._open(ADA)
    assert is_held(front, front._open(OWNER))


async def test_a_session_idle_for_an_hour_makes_room_for_anybody(
    front: HttpFront, clock: ManualClock
) -> None:
    old = front._open(ADA)
    clock.advance(http.IDLE_SECONDS + 1)
    front._open(OWNER)
    assert not is_held(front, old)
