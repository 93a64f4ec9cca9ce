"""What happens to memories after the decision to show them. They are reserved while they are on
their way to the agent. Then they are either delivered, or taken back so that they may surface
again."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from upwell.ground.meters import MEMORIES
from upwell.ground.trace import contained
from upwell.ground.types.cue import Cue, Door
from upwell.ground.types.memory import Hit, Query
from upwell.ground.types.surfacing import Surfacing
from upwell.surface.event import Event
from upwell.surface.filters import Pace
from upwell.surface.judge import is_judged
from upwell.surface.late_hits import LateHits
from upwell.surface.record import DecisionRecord
from upwell.surface.rules import StandingRules
from upwell.surface.seen_log import SeenLog
from upwell.surface.session_start import SessionStart

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
        self._record.undo(surfacing, cue, late=late)
        with contained("taking back a surfacing"):
            await self._withdraw(surfacing.hits, cue)
            if cue.door == Door.SESSION:
                await self._session_start.take_back(cue, surfacing)
                return
            self._pace.withdraw(cue.session, surfacing.id)
            if late:
                await self._offer_later(surfacing, cue)

    async def cut(self, surfacing: Surfacing, cue: Cue, omitted: int) -> Surfacing:
        """Undo the delivery of the last `omitted` memories in `surfacing`, for which the host had
        no room. Returns `surfacing` without them."""
        delivered_hits, rest = surfacing.hits[:-omitted], surfacing.hits[-omitted:]
        shorter = replace(surfacing, hits=delivered_hits, held_back=(*rest, *surfacing.held_back))
        self._record.shorten(shorter, rest, cue)
        with contained("taking back part of a surfacing"):
            await self._withdraw(rest, cue)
        return shorter

    async def _withdraw(self, hits: Sequence[Hit], cue: Cue) -> None:
        memories = [hit.memory for hit in hits]
        await self._seen_log.withdraw(memories, cue.session, cue.principal.name)
        await self._rules.take_back(cue.session, memories)

    async def _offer_later(self, surfacing: Surfacing, cue: Cue) -> None:
        # Rules are left out, because `StandingRules` delivers them again.
        hits = _without_opening(surfacing.hits)
        query = self._query_of(cue) if hits else None
        if query is not None:
            judged = any(map(is_judged, hits))
            await self._late_hits.keep(cue, query, hits, judged=judged)


def _without_opening(hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if not _OPENING & hit.signals.keys()]
