"""How long a search waits for another program or server, and what happens to late answers.

A search waits for part of its deadline. After several failures in a row, a breaker skips the source
for a while. If an answer arrives too late for an automatic search, the next automatic search about
the same subject uses it. As long as the source is that slow, automatic searches do not wait for it.
"""

import asyncio
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


class Waiting[Answer]:
    """Waits for answers from one source, and keeps the most recent late ones, each of which is used
    once. `unavailable()` turns a description of a failure into the error to raise.

    Explicit and automatic searches have separate breakers, because a source that is too slow for
    automatic searches may be fast enough for explicit ones. The source `_is_slow` if the last late
    answer took longer than `_quick_seconds`. Automatic searches then do not wait for answers.
    """

    def __init__(
        self, patience: Patience, unavailable: Callable[[str], RecallUnavailable], clock: Clock
    ) -> None:
        self._unavailable = unavailable
        self._clock = clock
        self._breakers = {
            awaited: Breaker(patience.max_failures, patience.reset_seconds, clock)
            for awaited in (True, False)
        }
        self._last_failure: dict[bool, str] = {}
        self._quick_seconds = patience.race_seconds * RACE_SHARE
        self._is_slow = False
        self._pending: set[asyncio.Task[Answer]] = set()
        self._late: list[tuple[float, Query, Answer]] = []

    def late(self, query: Query) -> Answer | None:
        """For an automatic search, take the most recent late answer to a similar query. The two
        queries must have the same scope and a file in common. If neither names a file, their texts
        must be the same."""
        oldest = self._clock.monotonic() - LATE_ANSWER_SECONDS
        self._late = [late for late in self._late if late[0] >= oldest]
        for index in reversed(range(0 if query.awaited else len(self._late))):
            if _are_alike(self._late[index][1], query):
                return self._late.pop(index)[2]
        return None

    async def answer(
        self,
        query: Query,
        deadline: Deadline,
        ask: Callable[[Query, Deadline], Coroutine[Any, Any, Answer]],
    ) -> Answer:
        """Return the source's answer if it arrives in time. The caller must then call `succeed()`
        or `fail()`, depending on whether the answer was usable. Raises RecallUnavailable if the
        source failed, took too long, or is currently being skipped."""
        if not query.awaited and self._is_slow and self._pending:
            raise self._unavailable("is slow and still working on an earlier request")
        if not self._breakers[query.awaited].allow():
            failure = self._last_failure[query.awaited]
            raise self._unavailable(f"failed too often and is paused; last failure: {failure}")
        seconds = deadline.remaining() * PATIENCE
        if not query.awaited:
            seconds = 0.0 if self._is_slow else min(seconds, self._quick_seconds)
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
        pending = list(self._pending)
        for request in pending:
            request.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    def _stop_waiting(
        self, request: "asyncio.Task[Answer]", query: Query, seconds: float
    ) -> RecallUnavailable:
        """The request of an automatic search continues, because its answer can be used later."""
        if query.awaited:
            request.cancel()
        else:
            began = self._clock.monotonic() if self._is_slow else None
            self._pending.add(request)
            request.add_done_callback(lambda done: self._arrived(done, query, began))
            if began is not None:
                return self._unavailable("is slow; the next search can use its answer")
        error = self._unavailable(f"did not answer within {seconds * 1000:.0f} ms")
        self.fail(error, query)
        return error

    def _arrived(self, done: "asyncio.Task[Answer]", query: Query, began: float | None) -> None:
        """`began` is the start time of a request for which no search waited. It is None if a search
        did wait: that search has already counted a failure."""
        self._pending.discard(done)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            if began is not None:
                self._last_failure[False] = str(error or "it did not answer")
                self._breakers[False].fail()
            return
        now = self._clock.monotonic()
        self._is_slow = began is None or now - began > self._quick_seconds
        self._breakers[False].succeed()
        self._late = [*self._late[1 - MAX_LATE_ANSWERS :], (now, query, done.result())]


def _are_alike(earlier: Query, query: Query) -> bool:
    if earlier.scope != query.scope:
        return False
    if earlier.paths or query.paths:
        return bool(set(earlier.paths) & set(query.paths))
    return bool(query.texts) and query.texts == earlier.texts
