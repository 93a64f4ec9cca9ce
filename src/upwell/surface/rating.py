"""Accepts ratings of shown memories, from the owner and from other principals."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.ground.clock import Clock
from upwell.ground.errors import UsageError
from upwell.ground.trace import conclude, span
from upwell.ground.types.principal import OWNER, Principal
from upwell.ground.types.surfacing import Feedback, Rating
from upwell.learn.feedback import Rated, of_rater, without_rater
from upwell.surface.record import DecisionRecord
from upwell.surface.seen_log import SeenLog

MAX_RATINGS = 120
"""How many ratings a principal other than the owner may make within an hour."""
_QUOTA_SECONDS = 3600.0


class SurfacingRatings:
    """Checks ratings of shown memories and passes them on to learning."""

    def __init__(self, record: DecisionRecord, seen_log: SeenLog, clock: Clock) -> None:
        self._record = record
        self._seen_log = seen_log
        self._clock = clock
        self._spent: dict[str, deque[float]] = {}

    async def rate(self, feedback: Feedback, principal: Principal = OWNER) -> list[Rated]:
        """Learn from a rating by a principal. Returns one record for each memory that was rated.

        Raises:
            UsageError: no such surfacing, no such memory in it, or too many ratings.
            StoreError: the store failed.
        """
        return await self.rate_all(feedback.surfacing_id, [feedback], principal)

    async def rate_all(
        self, surfacing_id: str, feedback: Sequence[Feedback], principal: Principal = OWNER
    ) -> list[Rated]:
        """Learn from ratings of individual memories in one surfacing. If one rating is rejected,
        none counts.

        Raises:
            UsageError: as in `rate`.
            StoreError: the store failed.
        """
        self._spend(principal.name, len(feedback))
        decision = await self._record.journal.find(surfacing_id)
        now = self._clock.now()
        ratings = [
            rated
            for rating in feedback
            for rated in _ratings_of(rating, decision, now, principal.name)
        ]
        names = ", ".join(dict.fromkeys(str(rating.rating) for rating in feedback))
        with span(
            "upwell.feedback",
            surfacing=surfacing_id,
            trace_id=decision["trace_id"] if decision else "",
        ) as current:
            await self._record.learning.rate(ratings)
            conclude(current, names)
        for rating in ratings:
            if rating.rating is Rating.ALREADY_KNOWN:
                await self._seen_log.known(without_rater(rating.memory), principal.name)
        self._record.write_soon()
        return ratings

    def _spend(self, principal: str, number: int) -> None:
        if not principal:
            return
        now, spent = self._clock.monotonic(), self._spent.setdefault(principal, deque())
        while spent and now - spent[0] > _QUOTA_SECONDS:
            spent.popleft()
        if len(spent) + number > MAX_RATINGS:
            raise UsageError(f"more than {MAX_RATINGS} ratings in an hour", hint="rate less often")
        spent.extend([now] * number)


def _ratings_of(
    feedback: Feedback, decision: Mapping[str, Any] | None, now: float, principal: str
) -> list[Rated]:
    """One rating for each memory that `feedback` is about: its `memory_id`, or all memories in the
    surfacing. Standing rules are left out, because no search chose them. The owner may rate every
    surfacing, other principals only their own.

    Raises:
        UsageError: the surfacing does not exist, or does not contain the memory.
    """
    surfacing_id = feedback.surfacing_id
    may_rate = not principal or (decision or {}).get("principal", "") == principal
    if decision is None or decision["outcome"] != "surfaced" or not may_rate:
        raise UsageError(
            f"no surfacing {surfacing_id!r}",
            hint="its id is in the block of memories and in _meta; ids are valid for 90 days",
        )
    scores = {memory_id: float(score) for memory_id, score in decision["memories"]}
    evidence = decision["evidence"]
    rateable_ids = [
        memory_id for memory_id in scores if "pinned" not in evidence.get(memory_id, {})
    ]
    named_memory = feedback.memory_id
    if named_memory is not None and named_memory not in rateable_ids:
        rule = " (a standing rule)" if named_memory in scores else ""
        raise UsageError(
            f"memory {named_memory!r}{rule} was not chosen in surfacing {surfacing_id}",
            hint=f"it chose: {', '.join(rateable_ids) or 'none that can be rated'}",
        )
    return [
        Rated(
            surfacing=surfacing_id,
            memory=of_rater(memory_id, principal),
            rating=feedback.rating,
            at=now if feedback.at is None else feedback.at,
            door=decision["door"],
            tool=of_rater(decision["tool"] or decision["door"], principal),
            score=scores[memory_id],
            signals=evidence.get(memory_id, {}),
        )
        for memory_id in (rateable_ids if named_memory is None else [named_memory])
    ]
