import asyncio
from contextlib import ExitStack

from upwell.gateway.clients import RequestContext, Session
from upwell.gateway.eras import Envelope
from upwell.gateway.upstreams.inbound import InFlight
from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import RawObject


class Away:
    """A channel without an agent."""

    async def request(self, method: str, params: bytes) -> Reply:
        raise AssertionError(method)

    async def notify(self, method: str, params: bytes = b"") -> None:
        raise AssertionError(method)


def context(principal: str = "me") -> RequestContext:
    return RequestContext(Session(Away(), principal=principal), Away(), None)


def test_a_question_goes_to_the_only_waiting_client() -> None:
    in_flight, first = InFlight(), context()
    assert in_flight.addressee() is None
    with in_flight.track(RawObject(), first):
        assert in_flight.addressee() is first


def test_between_two_clients_a_question_cannot_be_attributed() -> None:
    in_flight = InFlight()
    with in_flight.track(RawObject(), context()), in_flight.track(RawObject(), context()):
        assert in_flight.addressee() is None


def test_a_client_that_never_answers_does_not_block_the_others() -> None:
    in_flight, removed, here = InFlight(), context(), context()
    with ExitStack() as open_now:
        open_now.enter_context(in_flight.track(RawObject(), removed))
        open_now.enter_context(in_flight.asking(removed))
        assert in_flight.addressee() is removed
        open_now.enter_context(in_flight.track(RawObject(), here))
        assert in_flight.addressee() is here
        with in_flight.asking(here):
            assert in_flight.addressee() is None
        assert in_flight.addressee() is here


def test_a_late_log_message_is_for_the_principal_whose_call_has_just_ended() -> None:
    in_flight, mine, theirs = InFlight(), context("me"), context("you")
    with in_flight.track(RawObject(), mine):
        assert in_flight.listeners() == [mine]
    assert in_flight.listeners() == [mine.owner]
    with in_flight.track(RawObject(), theirs):
        principals = {client.principal for client in in_flight.listeners()}
        assert principals == {"me", "you"}, "the message may be about either"


def test_between_two_principals_nothing_is_guessed() -> None:
    in_flight, mine, theirs = InFlight(), context("me"), context("you")
    with (
        in_flight.track(RawObject(), mine),
        in_flight.asking(mine),
        in_flight.track(RawObject(), theirs),
    ):
        assert in_flight.addressee() is None


def test_requests_of_a_shared_session_are_separate_agents() -> None:
    in_flight, session = InFlight(), Session(Away(), modern=True, shared=True)
    first, other = (
        RequestContext(session, Away(), Envelope("2026-07-28", b"{}")) for _ in range(2)
    )
    with in_flight.track(RawObject(), first):
        assert in_flight.addressee() is first
        with in_flight.track(RawObject(), other):
            assert in_flight.addressee() is None
            assert in_flight.clients() == [first, other]


def test_calls_of_one_connection_belong_to_one_agent() -> None:
    in_flight, session = InFlight(), Session(Away())
    first, other = (RequestContext(session, Away(), None) for _ in range(2))
    with in_flight.track(RawObject(), first), in_flight.track(RawObject(), other):
        assert in_flight.addressee() is other


async def test_a_cancelled_call_counts_as_in_flight_until_it_is_answered() -> None:
    in_flight, removed, here = InFlight(), context(), context()
    left = in_flight.track(RawObject(), removed)
    call = left.__enter__()
    call.sent = True
    left.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)
    assert in_flight.addressee(here) is None
    assert in_flight.addressee(removed) is removed
    with in_flight.track(RawObject(), here):
        assert in_flight.addressee() is None
        in_flight.answered(call)
        assert in_flight.addressee() is here
