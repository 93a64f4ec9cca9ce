import asyncio
from contextlib import ExitStack

from upwell.gateway.client import Caller, Session
from upwell.gateway.eras import Envelope
from upwell.gateway.inflight import InFlight
from upwell.ground.types import Reply
from upwell.wire.rawjson import RawObject


class Away:
    """A way to nobody."""

    async def request(self, method: str, params: bytes) -> Reply:
        raise AssertionError(method)

    async def notify(self, method: str, params: bytes = b"") -> None:
        raise AssertionError(method)


def caller(principal: str = "me") -> Caller:
    return Caller(Session(Away(), principal=principal), Away(), None)


def test_a_question_belongs_to_the_only_client_that_waits() -> None:
    in_flight, one = InFlight(), caller()
    assert in_flight.whose() is None
    with in_flight.begun(RawObject(), one):
        assert in_flight.whose() is one


def test_between_two_clients_it_cannot_be_told() -> None:
    in_flight = InFlight()
    with in_flight.begun(RawObject(), caller()), in_flight.begun(RawObject(), caller()):
        assert in_flight.whose() is None


def test_a_client_that_never_comes_back_with_its_answer_does_not_silence_the_others() -> None:
    in_flight, gone, here = InFlight(), caller(), caller()
    with ExitStack() as open_now:
        open_now.enter_context(in_flight.begun(RawObject(), gone))
        open_now.enter_context(in_flight.asking(gone))
        assert in_flight.whose() is gone
        open_now.enter_context(in_flight.begun(RawObject(), here))
        assert in_flight.whose() is here
        with in_flight.asking(here):
            assert in_flight.whose() is None
        assert in_flight.whose() is here


def test_between_two_people_nothing_is_guessed() -> None:
    in_flight, mine, theirs = InFlight(), caller("me"), caller("you")
    with (
        in_flight.begun(RawObject(), mine),
        in_flight.asking(mine),
        in_flight.begun(RawObject(), theirs),
    ):
        assert in_flight.whose() is None


def test_requests_of_a_shared_session_are_each_one_s_own() -> None:
    in_flight, session = InFlight(), Session(Away(), modern=True, shared=True)
    one, other = (Caller(session, Away(), Envelope("2026-07-28", b"{}")) for _ in range(2))
    with in_flight.begun(RawObject(), one):
        assert in_flight.whose() is one
        with in_flight.begun(RawObject(), other):
            assert in_flight.whose() is None
            assert in_flight.clients() == [one, other]


def test_calls_of_one_connection_are_one_agent_s() -> None:
    in_flight, session = InFlight(), Session(Away())
    one, other = (Caller(session, Away(), None) for _ in range(2))
    with in_flight.begun(RawObject(), one), in_flight.begun(RawObject(), other):
        assert in_flight.whose() is other


async def test_a_call_that_was_given_up_is_nobody_else_s_until_it_is_answered() -> None:
    in_flight, gone, here = InFlight(), caller(), caller()
    left = in_flight.begun(RawObject(), gone)
    call = left.__enter__()
    call.sent = True
    left.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)
    assert in_flight.whose(here) is None
    assert in_flight.whose(gone) is gone
    with in_flight.begun(RawObject(), here):
        assert in_flight.whose() is None
        in_flight.answered(call)
        assert in_flight.whose() is here
