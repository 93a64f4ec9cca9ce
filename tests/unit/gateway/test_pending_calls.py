"""A call stays open while its client is asked, and only its own session can resume it."""

import asyncio
import json
from typing import Any

import pytest

from upwell.gateway.clients import RequestContext, Session
from upwell.gateway.eras import Envelope
from upwell.gateway.routing import router as module
from upwell.gateway.routing.router import STATE_PREFIX, PendingCalls
from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import NotJson, RawObject, dumps

ROOTS = Envelope("2026-07-28", b'{"roots":{}}')


class NoChannel:
    async def request(self, method: str, params: bytes) -> Reply:
        raise AssertionError(method)

    async def notify(self, method: str, params: bytes = b"") -> None:
        raise AssertionError(method)


def modern_client() -> RequestContext:
    return RequestContext(Session(NoChannel(), modern=True), NoChannel(), ROOTS)


async def asking(context: RequestContext, times: int = 1) -> Reply:
    """A call during which the upstream asks its client for roots, `times` times."""
    replies = [await context.ask("roots/list", b"{}") for _ in range(times)]
    return Reply(result=b'{"answers":[%b]}' % b",".join(reply.result for reply in replies))


def read(reply: Reply | None) -> dict[str, Any]:
    assert reply is not None
    return json.loads(reply.result)


def answers_to(question: dict[str, Any], answer: str) -> RawObject:
    answers = {key: {"roots": [answer]} for key in question["inputRequests"]}
    return RawObject.parse(dumps({"inputResponses": answers}))


async def test_a_call_is_resumed_with_the_answer_of_its_client() -> None:
    calls, client = PendingCalls(), modern_client()
    question = read(await calls.run(client, asking(client)))
    assert question["requestState"].startswith(STATE_PREFIX)
    [request] = question["inputRequests"].values()
    assert request == {"method": "roots/list", "params": {}}
    resumed = await calls.resume(question["requestState"], answers_to(question, "a"), client)
    assert read(resumed) == {"answers": [{"roots": ["a"]}]}


async def test_a_call_may_ask_more_than_once() -> None:
    calls, client = PendingCalls(), modern_client()
    first = read(await calls.run(client, asking(client, times=2)))
    second = read(await calls.resume(first["requestState"], answers_to(first, "a"), client))
    assert second["requestState"] != first["requestState"]
    last = await calls.resume(second["requestState"], answers_to(second, "b"), client)
    assert read(last) == {"answers": [{"roots": ["a"]}, {"roots": ["b"]}]}


async def test_malformed_answers_leave_the_call_open() -> None:
    calls, client = PendingCalls(), modern_client()
    question = read(await calls.run(client, asking(client)))
    malformed = RawObject.parse(b'{"inputResponses":[]}')
    with pytest.raises(NotJson):
        await calls.resume(question["requestState"], malformed, client)
    resumed = await calls.resume(question["requestState"], answers_to(question, "a"), client)
    assert read(resumed) == {"answers": [{"roots": ["a"]}]}


async def test_an_unanswered_question_is_repeated() -> None:
    calls, client = PendingCalls(), modern_client()
    first = read(await calls.run(client, asking(client)))
    again = read(await calls.resume(first["requestState"], RawObject(), client))
    assert again["inputRequests"] == first["inputRequests"]
    assert await calls.resume(first["requestState"], RawObject(), client) is None, "used up"
    last = await calls.resume(again["requestState"], answers_to(again, "a"), client)
    assert read(last) == {"answers": [{"roots": ["a"]}]}


async def test_another_session_cannot_resume_a_call_nor_answer_its_question() -> None:
    calls, client, stranger = PendingCalls(), modern_client(), modern_client()
    question = read(await calls.run(client, asking(client)))
    state = question["requestState"]
    assert await calls.resume(state, answers_to(question, "stranger"), stranger) is None
    resumed = await calls.resume(state, answers_to(question, "own"), client)
    assert read(resumed) == {"answers": [{"roots": ["own"]}]}


async def test_a_cancelled_request_cancels_its_call() -> None:
    calls, client, cancelled = PendingCalls(), modern_client(), asyncio.Event()

    async def endless() -> Reply:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    running = asyncio.create_task(calls.run(client, endless()))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(5):
        await cancelled.wait()


async def test_beyond_the_limit_the_oldest_call_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 2)
    calls, client = PendingCalls(), modern_client()
    states = []
    for _ in range(3):
        question = read(await calls.run(client, asking(client)))
        states.append(question["requestState"])
    resumed = [await calls.resume(state, RawObject(), client) for state in states]
    assert [reply is not None for reply in resumed] == [False, True, True]
    await calls.aclose()


async def test_closing_abandons_every_call() -> None:
    calls, client = PendingCalls(), modern_client()
    question = read(await calls.run(client, asking(client)))
    await calls.aclose()
    assert await calls.resume(question["requestState"], RawObject(), client) is None
