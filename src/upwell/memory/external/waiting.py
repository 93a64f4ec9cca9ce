"""How long a search waits for another program or server, and what happens to late answers.

A search waits for part of its deadline. After several failures in a row, a breaker skips the source
for a while. If an answer arrives too late for an automatic search, the next automatic search about
the same subject uses it. As long as the source is that slow, automatic searches do not wait for it.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from upwell.ground.background import Breaker
from upwell.ground.clock import Clock, Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.types.memory import Query

LATE_ANSWER_SECONDS = 60.0
"""How long a late answer remains usable."""
MAX_LATE_ANSWERS = 5
PATIENCE = 0.7
"""The share of its deadline that an explicit search spends waiting for the source."""
RACE_SHARE = 2 / 3
"""The share of `race_seconds` that an automatic search spends waiting for the source. The rest is
left for the hits of other sources."""


class Patience(Struct, frozen=True, kw_only=True):
    """`race_seconds` is how long an automatic search may take. The other fields configure the
    breaker."""

    race_seconds: float = 0.3
    max_failures: int = 3
    reset_seconds: float = 60.0


class LateAnswers[Answer]:
    """Pending requests to a server, and the most recent late answers. Each answer is used once.

    `is_slow` is True if the last late answer took longer than `quick_seconds`. As long as it is
    True, automatic searches should not wait for answers. `on_outcome` is called with "" when a late
    answer arrives. If a request fails and no search waited for it, `on_outcome` is called with the
    reason.
    """

    def __init__(
        self, quick_seconds: float, on_outcome: Callable[[str], None], clock: Clock
    ) -> None:
        self.is_slow = False
        self._quick_seconds = quick_seconds
        self._on_outcome = on_outcome
        self._clock = clock
        self._pending: set[asyncio.Task[Answer]] = set()
        self._answers: list[tuple[float, Query, Answer]] = []

    @property
    def is_busy(self) -> bool:
        """Whether the server is slow and still working on an earlier request."""
        return self.is_slow and bool(self._pending)

    def expect(self, request: "asyncio.Task[Answer]", query: Query) -> bool:
        """Take over a request from a search that no longer waits for it. Returns True if the search
        did not wait at all."""
        began = self._clock.monotonic() if self.is_slow else None
        self._pending.add(request)
        request.add_done_callback(lambda done: self._arrived(done, query, began))
        return began is not None

    async def aclose(self) -> None:
        pending = list(self._pending)
        for request in pending:
            request.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _arrived(self, done: "asyncio.Task[Answer]", query: Query, began: float | None) -> None:
        """`began` is the start time of a request for which no search waited. It is None if a search
        did wait: that search has already counted a failure."""
        self._pending.discard(done)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            if began is not None:
                self._on_outcome(str(error or "it did not answer"))
            return
        took = self._clock.monotonic() - began if began is not None else math.inf
        self.is_slow = took > self._quick_seconds
        self._on_outcome("")
        answer = self._clock.monotonic(), query, done.result()
        self._answers = [*self._answers[1 - MAX_LATE_ANSWERS :], answer]

    def about(self, query: Query) -> Answer | None:
        """Take the most recent late answer to a similar query. The two queries must have the same
        scope and a file in common. If neither names a file, their texts must be the same."""
        oldest = self._clock.monotonic() - LATE_ANSWER_SECONDS
        self._answers = [answer for answer in self._answers if answer[0] >= oldest]
        for index in reversed(range(len(self._answers))):
            if _are_alike(self._answers[index][1], query):
                return self._answers.pop(index)[2]
        return None


def _are_alike(earlier: Query, query: Query) -> bool:
    if earlier.scope != query.scope:
        return False
    if earlier.paths or query.paths:
        return bool(set(earlier.paths) & set(query.paths))
    return bool(query.texts) and query.texts == earlier.texts


class Waiting[Answer]:
    """Waits for answers from one source. `unavailable()` turns a description of a failure into the
    error to raise.

    Explicit and automatic searches have separate breakers, because a source that is too slow for
    automatic searches may be fast enough for explicit ones.
    """

    def __init__(
        self, patience: Patience, unavailable: Callable[[str], RecallUnavailable], clock: Clock
    ) -> None:
        self._unavailable = unavailable
        self._breakers = {
            awaited: Breaker(patience.max_failures, patience.reset_seconds, clock)
            for awaited in (True, False)
        }
        self._last_failure: dict[bool, str] = {}
        self._quick_seconds = patience.race_seconds * RACE_SHARE
        self._late_answers = LateAnswers[Answer](self._quick_seconds, self._count_late, clock)

    def late(self, query: Query) -> Answer | None:
        """For an automatic search, take the late answer to an earlier query about the same
        subject."""
        return None if query.awaited else self._late_answers.about(query)

    async def answer(
        self,
        query: Query,
        deadline: Deadline,
        ask: Callable[[Query, Deadline], Coroutine[Any, Any, Answer]],
    ) -> Answer:
        """Return the source's answer if it arrives in time. The caller must then call `succeed()`
        or `fail()`, depending on whether the answer was usable. Raises RecallUnavailable if the
        source failed, took too long, or is currently being skipped."""
        if not query.awaited and self._late_answers.is_busy:
            raise self._unavailable("is slow and still working on an earlier request")
        if not self._breakers[query.awaited].allow():
            failure = self._last_failure[query.awaited]
            raise self._unavailable(f"failed too often and is paused; last failure: {failure}")
        seconds = deadline.remaining() * PATIENCE
        if not query.awaited:
            seconds = 0.0 if self._late_answers.is_slow else min(seconds, self._quick_seconds)
        request = asyncio.create_task(ask(query, deadline))
        try:
            await asyncio.wait({request}, timeout=seconds)
        except asyncio.CancelledError:
            request.cancel()
            raise
        if not request.done():
            raise self._stop_waiting(request, query, seconds)
        try:
            return request.result()
        except RecallUnavailable as error:
            self.fail(error, query)
            raise

    def succeed(self, query: Query) -> None:
        self._breakers[query.awaited].succeed()

    def fail(self, error: RecallUnavailable, query: Query) -> None:
        self._last_failure[query.awaited] = error.message
        self._breakers[query.awaited].fail()

    async def aclose(self) -> None:
        await self._late_answers.aclose()

    def _stop_waiting(
        self, request: "asyncio.Task[Answer]", query: Query, seconds: float
    ) -> RecallUnavailable:
        """The request of an automatic search continues, because its answer can be used later."""
        if query.awaited:
            request.cancel()
        elif self._late_answers.expect(request, query):
            return self._unavailable("is slow; the next search can use its answer")
        error = self._unavailable(f"did not answer within {seconds * 1000:.0f} ms")
        self.fail(error, query)
        return error

    def _count_late(self, failure: str) -> None:
        """`failure` is "" if an answer arrived."""
        if failure:
            self._last_failure[False] = failure
            self._breakers[False].fail()
        else:
            self._breakers[False].succeed()
