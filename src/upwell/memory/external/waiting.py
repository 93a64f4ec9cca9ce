"""What every external source shares: how long a search waits for it, what happens to late answers,
and scores that can be compared.

A search waits for part of its deadline. After several failures in a row, a breaker skips the source
for a while. If an answer arrives too late for an automatic search, the next automatic search about
the same subject uses it. As long as the source is that slow, automatic searches do not wait for it.

The scores of a source order its hits but do not show whether a hit is relevant (docs/decisions.md,
4). The text of the hits is therefore loaded into a temporary store and searched there. Texts
without any of upwell's signals come last, with the score 0, which is too low for automatic
searches. In explicit searches, a hit gets the source's own score if that is higher, because the
source may have found the hit by meaning.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.background import Breaker
from upwell.ground.clock import Clock, Deadline
from upwell.ground.errors import RecallUnavailable
from upwell.ground.project import is_seen
from upwell.ground.types.memory import Hit, Memory, Query
from upwell.ground.types.rpc import is_visible
from upwell.memory.ranking.scoring import rank
from upwell.memory.records import stamped
from upwell.memory.sqlite.rows import MIGRATIONS, insert
from upwell.memory.sqlite.store import pool_of

UNSCORED = 0.2
"""In explicit searches, a text to which the source gives no score gets at least this score."""


def rescored(
    memories: Sequence[Memory],
    query: Query,
    now: float,
    deadline: Deadline,
    own_scores: Mapping[str, float] | None = None,
) -> list[Hit]:
    """Return these memories as hits of `query`, most relevant first. Their ids must be unique.
    Memories outside the query's scope are left out. `own_scores` maps ids to the source's own
    scores, or is None if these must not count. Scores outside 0..1 never count."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for migration in MIGRATIONS:
            migration(db)
        tenant = query.scope.tenant
        memories = [stamped(replace(memory, tenant=tenant), now) for memory in memories]
        insert(db, memories)
        unlimited = replace(query, limit=max(1, len(memories)))
        hits = rank(pool_of(db, unlimited, now, deadline), unlimited)
    finally:
        db.close()
    hit_ids = {hit.memory.id for hit in hits}
    others = [
        Hit(memory=memory, score=0.0)
        for memory in memories
        if memory.id not in hit_ids and _is_seen(memory, query)
    ]
    all_hits = [*hits, *others]
    if query.awaited and own_scores is not None:
        all_hits = [_with_own_score(hit, own_scores) for hit in all_hits]
        all_hits.sort(key=lambda hit: -hit.score)
    return all_hits[: query.limit]


def _with_own_score(hit: Hit, own_scores: Mapping[str, float]) -> Hit:
    own = own_scores.get(hit.memory.id, UNSCORED)
    return replace(hit, score=max(hit.score, own)) if 0.0 <= own <= 1.0 else hit


def _is_seen(memory: Memory, query: Query) -> bool:
    scope = query.scope
    if not is_visible(memory.namespace, scope.namespaces):
        return False
    return is_seen(memory.project, scope.project)


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
