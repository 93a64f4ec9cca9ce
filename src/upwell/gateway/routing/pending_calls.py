"""Calls that wait for an answer from their client.

A handshake-era upstream (`gateway/eras.py`) may ask its client a question in the middle of a call.
A modern client can be asked only in the result of a call. The call to the upstream therefore stays
open here, and the client gets an `input_required` result with a state that identifies the call. The
client then repeats the call with that state and its answers.
"""

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any

from msgspec import Struct

from upwell.gateway.clients import RequestContext
from upwell.gateway.eras import input_required
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import RawObject

STATE_PREFIX = "upwell-parked-"
"""Marks a `requestState` as ours. Any other state belongs to an upstream."""
WAIT_SECONDS = 600.0
MAX_PENDING = 1000
"""If more calls are pending, the oldest is abandoned."""


class _PendingCall(Struct):
    context: RequestContext
    task: "asyncio.Task[Reply]"
    expiry: asyncio.TimerHandle | None = None

    async def answer_or_question(self) -> bool:
        """Wait until the call ends or asks its client a question. Returns whether the call has
        ended. Cancelling the wait cancels the call.
        """
        question_event: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_question() -> None:
            if not question_event.done():
                question_event.set_result(None)

        self.context.on_question = on_question
        if self.open_questions():
            on_question()
        try:
            futures: set[asyncio.Future[Any]] = {self.task, question_event}
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.task.cancel()
            raise
        return self.task.done()

    def open_questions(self) -> dict[str, tuple[str, bytes]]:
        return {
            key: (question.method, question.params)
            for key, question in self.context.questions.items()
            if question.is_open
        }


class PendingCalls:
    """Keeps calls open while their clients answer questions, and then resumes them.

    Only a request from the call's session can resume it, and only once.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _PendingCall] = {}

    async def run(self, context: RequestContext, work: Coroutine[Any, Any, Reply]) -> Reply:
        """Return the result of `work`, or an `input_required` result if the client must first
        answer a question."""
        return await self._next_reply(_PendingCall(context, asyncio.create_task(work)))

    async def resume(self, state: str, params: RawObject, context: RequestContext) -> Reply | None:
        """Continue the call identified by `state` with the client's answers. Returns None if this
        session has no such call.

        Raises:
            NotJson: the answers are not a JSON object.
        """
        pending = self._pending.get(state)
        if pending is None or pending.context.session != context.session:
            return None
        # Before the call is claimed, so that a malformed request leaves it open.
        answers = RawObject.parse(params.get("inputResponses") or b"{}")
        del self._pending[state]
        if pending.expiry is not None:
            pending.expiry.cancel()
        pending.context.channel = context.channel
        for key, question in pending.context.questions.items():
            if (answer := answers.get(key)) is not None and question.is_open:
                question.answer.set_result(Reply(result=answer))
        # There must be no await between setting the answers and `_next_reply()`, which listens for
        # the next question. Otherwise, the call could continue before anyone listens.
        return await self._next_reply(pending)

    async def aclose(self) -> None:
        """Abandon all calls."""
        tasks = [pending.task for pending in self._pending.values()]
        for state in list(self._pending):
            self._abandon(state)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _next_reply(self, pending: _PendingCall) -> Reply:
        if await pending.answer_or_question():
            return pending.task.result()
        state = STATE_PREFIX + secrets.token_urlsafe(18)
        if len(self._pending) >= MAX_PENDING:
            self._abandon(next(iter(self._pending)))
        self._pending[state] = pending
        loop = asyncio.get_running_loop()
        pending.expiry = loop.call_later(WAIT_SECONDS, self._abandon, state)
        return Reply(result=input_required(pending.open_questions(), state).encode())

    def _abandon(self, state: str) -> None:
        pending = self._pending.pop(state, None)
        if pending is None:
            return
        if pending.expiry is not None:
            pending.expiry.cancel()
        pending.task.cancel()
        # The call may have failed in the meantime, and nothing else retrieves its exception.
        if pending.task.done() and not pending.task.cancelled() and pending.task.exception():
            LOG.info("an abandoned call had failed: %s", pending.task.exception())
