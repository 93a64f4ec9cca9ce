"""The record of decisions, and what happens to memories after the decision to show them.

During a call, decisions are only queued; they are written within about half a second. Memories are
reserved while they are on their way to the agent. Then they are either delivered, or taken back so
that they may surface again. Ratings of shown memories come from the owner and from other
principals.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from upwell.ground.clock import Clock
from upwell.ground.errors import UsageError
from upwell.ground.text.tokens import count
from upwell.ground.trace import MEMORIES, conclude, contained, span
from upwell.ground.types.cue import Cue, Door, Feedback, Rating, Skip, Surfacing
from upwell.ground.types.memory import Hit, Query
from upwell.ground.types.rpc import OWNER, Principal
from upwell.learn.feedback import Rated, of_rater, without_rater
from upwell.surface.event import Event
from upwell.surface.filters import Pace
from upwell.surface.journal import Journal, undelivered
from upwell.surface.judge import is_judged
from upwell.surface.learning import Learning
from upwell.surface.options import PipelineOptions
from upwell.surface.render import ENTRY_MARK
from upwell.surface.rules import StandingRules
from upwell.surface.seen_log import LateHits, SeenLog
from upwell.surface.session_start import SessionStart

WRITE_SECONDS = 0.5

Job = Callable[[], Awaitable[object]]


class DecisionRecord:
    """Records decisions, and corrects the record if memories did not reach the agent. A cue that
    must not be recorded (`PipelineOptions.records`) leaves no trace. Everything that is queued is
    written half a second after a request, so that one run serves every request made in the
    meantime."""

    def __init__(self, journal: Journal, learning: Learning, options: PipelineOptions) -> None:
        self.journal = journal
        self.learning = learning
        self.covers = options.records
        self._jobs: Sequence[Job] = [journal.flush, *learning.jobs()]
        self._is_due = False
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, cue: Cue, outcome: Surfacing | Skip, took_ms: float) -> None:
        """Record a decision."""
        if not self.covers(cue):
            return
        key = outcome.id if isinstance(outcome, Surfacing) else f"k_{secrets.token_hex(6)}"
        with contained("noting a decision"):
            self.journal.note(cue, outcome, key, took_ms)
            self.learning.notice(cue, outcome)
            self.write_soon()

    def correct(
        self,
        cue: Cue,
        lost: Surfacing,
        outcome: Surfacing | Skip,
        *,
        late: bool = False,
        omitted_tokens: int = 0,
    ) -> None:
        """Record `outcome` in place of the decision `lost`, whose hits did not reach the agent.
        With `late`, they were ready too late for their call. `omitted_tokens` belong to memories in
        the text that were dropped."""
        if not self.covers(cue):
            return
        self.learning.undo(lost)
        tokens = omitted_tokens
        self.journal.note(cue, outcome, lost.id, lost.took_ms, late=late, omitted_tokens=tokens)
        self.write_soon()

    async def write(self, *jobs: Job) -> None:
        """Write the queued decisions and counts, and run these jobs alongside."""
        await together(*jobs, self.journal.flush, self.learning.counts.flush)

    def write_soon(self) -> None:
        """Write what is queued, half a second from now."""
        self._is_due = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_until_done())

    async def aclose(self) -> None:
        """Write what is queued, and stop."""
        self._closing.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await together(*self._jobs)

    async def _write_until_done(self) -> None:
        while self._is_due:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), WRITE_SECONDS)
            self._is_due = False
            await together(*self._jobs)


async def together(*jobs: Job) -> None:
    """Run the jobs at the same time, so that their writes share a transaction. A job that fails
    does not stop the others."""

    async def run(job: Job) -> None:
        with contained("background work of surfacing"):
            await job()

    await asyncio.gather(*map(run, jobs))


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
        Raises UsageError if there is no such surfacing, no such memory in it, or if there are too
        many ratings, and StoreError if the store failed."""
        return await self.rate_all(feedback.surfacing_id, [feedback], principal)

    async def rate_all(
        self, surfacing_id: str, feedback: Sequence[Feedback], principal: Principal = OWNER
    ) -> list[Rated]:
        """Learn from ratings of individual memories in one surfacing. If one rating is rejected,
        none counts. Raises the same errors as `rate()`."""
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
    surfacing, other principals only their own. Raises UsageError if the surfacing does not exist,
    or does not contain the memory."""
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


_OPENING = frozenset({"pinned", "kind", "told"})
"""A hit with one of these signals is a standing rule or a note for the start of a session.
`StandingRules` and `SessionStart` record such deliveries."""


class Deliveries:
    """Tracks which memories reach their agents. `query_of` returns the query of a cue."""

    def __init__(
        self,
        record: DecisionRecord,
        seen_log: SeenLog,
        pace: Pace,
        late_hits: LateHits,
        rules: StandingRules,
        session_start: SessionStart,
        query_of: Callable[[Cue], Query | None],
    ) -> None:
        self._record = record
        self._seen_log = seen_log
        self._pace = pace
        self._late_hits = late_hits
        self._rules = rules
        self._session_start = session_start
        self._query_of = query_of

    async def reserve(self, surfacing: Surfacing, cue: Event, query: Query) -> None:
        """Reserve the memories in `surfacing`: for a minute, they count as delivered. Also count
        `surfacing` towards the session's rate limit."""
        if not cue.session:
            return
        await self._seen_log.reserve(surfacing.memories, cue.session, cue.principal.name)
        self._pace.record(cue, query, surfacing.id)

    async def delivered(self, surfacing: Surfacing, cue: Cue) -> None:
        """Record that the agent received `surfacing`."""
        memories = [hit.memory for hit in _without_opening(surfacing.hits)]
        MEMORIES.add(by=len(surfacing.hits))
        if not self._record.covers(cue):
            return

        async def log() -> None:
            if cue.session and cue.door != Door.SESSION:
                await self._seen_log.record(memories, cue.session, cue.principal.name)

        if cue.door == Door.ASK:
            await self._record.learning.viewed(memories)
        # Write at once, because decisions still in the queue are lost if the process is killed.
        await self._record.write(log)

    async def take_back(self, surfacing: Surfacing, cue: Cue, *, late: bool = False) -> None:
        """Undo `surfacing`, which did not reach the agent, so that its memories may surface again.
        With `late`, it was ready too late for its call, and a later call may get its memories
        (`LateHits`)."""
        self._record.correct(cue, surfacing, undelivered(surfacing, late=late), late=late)
        with contained("taking back a surfacing"):
            await self._withdraw(surfacing.hits, cue)
            if cue.door == Door.SESSION:
                await self._session_start.take_back(cue, surfacing)
                return
            self._pace.withdraw(cue.session, surfacing.id)
            # Rules are left out, because `StandingRules` delivers them again.
            hits = _without_opening(surfacing.hits) if late else []
            query = self._query_of(cue) if hits else None
            if query is not None:
                judged = any(map(is_judged, hits))
                await self._late_hits.keep(cue, query, hits, judged=judged)

    async def cut(self, surfacing: Surfacing, cue: Cue, omitted: int) -> Surfacing:
        """Undo the delivery of the last `omitted` memories in `surfacing`, for which the host had
        no room. Returns `surfacing` without them."""
        delivered_hits, rest = surfacing.hits[:-omitted], surfacing.hits[-omitted:]
        shorter = replace(surfacing, hits=delivered_hits, held_back=(*rest, *surfacing.held_back))
        lines = [line for line in surfacing.text.split("\n") if line.startswith(ENTRY_MARK)]
        # The last lines belong to the omitted hits.
        omitted_tokens = sum(map(count, lines[-len(rest) :]))
        if len(lines) <= len(rest):
            omitted_tokens = count(surfacing.text)
        lost = replace(shorter, hits=rest)
        self._record.correct(cue, lost, shorter, omitted_tokens=omitted_tokens)
        with contained("taking back part of a surfacing"):
            await self._withdraw(rest, cue)
        return shorter

    async def _withdraw(self, hits: Sequence[Hit], cue: Cue) -> None:
        memories = [hit.memory for hit in hits]
        await self._seen_log.withdraw(memories, cue.session, cue.principal.name)
        await self._rules.take_back(cue.session, memories)


def _without_opening(hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if not _OPENING & hit.signals.keys()]
