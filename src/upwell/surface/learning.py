"""What surfacing learns: the scores that memories need (thresholds), the memories that were rated
down (demotions), how agents used memories, and counts."""

from collections.abc import Awaitable, Callable, Sequence

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.ledger import TtlStore
from upwell.ground.names import STM_ID
from upwell.ground.types.cue import Cue, Rating, Skip, Surfacing
from upwell.ground.types.memory import Hit, Memory
from upwell.learn.feedback import MemoryUse, Rated, without_rater
from upwell.learn.implicit import Observation, Rare, Sighting, Uses, Watching, Written
from upwell.learn.learned import Learned, LearnedLimits
from upwell.learn.options import LearnOptions
from upwell.surface.moments import case_of
from upwell.surface.options import SurfaceOptions
from upwell.usage.events import CountedEvent, Counts

MarkUsed = Callable[[Sequence[str]], Awaitable[None]]
"""Receives the ids of memories that were used."""


def _case_of(surfacing: Surfacing, hit: Hit) -> str:
    return case_of(surfacing.moment, hit.memory)


class Learning:
    """What one `Surfacer` learns. During a call, it queues events and, except in
    `was_ignored_twice()`, reads only values that are already loaded. `jobs()` returns the work to
    do afterwards.

    `rare` returns those of the given words that few memories contain; without it, nobody watches
    how memories are used. `mark_used` receives the ids of the memories that were used.
    """

    def __init__(
        self,
        learned: Learned,
        ttl_store: TtlStore,
        *,
        rare: Rare | None = None,
        mark_used: MarkUsed | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.learned = learned
        self.counts = Counts(ttl_store, clock)
        self._uses = Uses(ttl_store)
        self._mark_used = mark_used
        self._watching = (
            Watching(ttl_store, self._uses, rare, self._conclude, clock, _case_of) if rare else None
        )

    @classmethod
    def none(cls, ttl_store: TtlStore, surface: SurfaceOptions, clock: Clock) -> "Learning":
        """A `Learning` that counts decisions and learns nothing."""
        limits = LearnedLimits(min_score=surface.min_score)
        learned = Learned(None, Uses(ttl_store), LearnOptions(auto_tune=False), limits)
        return cls(learned, ttl_store, clock=clock)

    def jobs(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """The work to do after calls."""
        watching = [self._conclude_uses] if self._watching else []
        return (*watching, self.counts.flush, self.learned.load_learned)

    def min_score(self, cue: Cue, case: str = "", *, exact: bool = False) -> float:
        """The minimum score for memories of this case. It depends on the cue's tool or, without a
        tool, on its door. `exact` is True if the cue matches the memory's trigger exactly."""
        tool = cue.tool or str(cue.door)
        return self.learned.min_score(tool, cue.principal.name, case, exact=exact)

    def is_demoted(self, memory_id: str, cue: Cue) -> bool:
        """True if the cue's principal has rated the memory down so often that it is shown only on
        request."""
        return self.learned.is_demoted(memory_id, cue.principal.name)

    async def sightings(self) -> Sequence[Sighting]:
        """The observations of whether agents used or ignored memories, oldest first."""
        return await self._uses.all()

    async def was_ignored_twice(self, memory_id: str) -> bool:
        """True if agents ignored the memory the last two times."""
        samples = [sighting.sample for sighting in await self._uses.all(memory_id)]
        latest = sorted(samples, key=lambda sample: sample.at)[-2:]
        return len(latest) == 2 and all(sample.evidence is MemoryUse.IGNORED for sample in latest)

    def notice(self, cue: Cue, outcome: Surfacing | Skip) -> None:
        """Note a decision. It is counted from its row in the journal."""
        for place in outcome.missing:
            self.counts.add(CountedEvent.MISSING, place.partition(":")[0], door=str(cue.door))
        # The thresholds apply to all principals, so only the owner's agents may shift them.
        if self._watching and not cue.principal.name:
            self._watching.noticed(cue, outcome)

    def undo(self, surfacing: Surfacing) -> None:
        """Stop watching memories that did not reach the agent."""
        if self._watching:
            self._watching.undo(surfacing)

    def offered_late(self, cue: Cue) -> None:
        """Count that late hits (`LateHits`) were offered to this cue."""
        self.counts.add(CountedEvent.LATE, "offered", door=str(cue.door), tool=cue.tool or "")

    def listed(self, host: str, tokens: int) -> None:
        """Count the descriptions of upwell's own tools, which a session has listed."""
        self.counts.add(CountedEvent.TOOL_TOKENS, host=host, by=tokens)

    def opened(self, session: str, memory_id: str) -> None:
        """Note that the agent fetched the full text of a memory."""
        if self._watching:
            self._watching.opened(session, memory_id)

    async def viewed(self, memories: Sequence[Memory]) -> None:
        """Note that these memories were read on request. The notes from `stm.json` among them are
        then kept for another `stm.retention_days` (seed 001, tests/NAMES.md)."""
        notes = [memory.id for memory in memories if memory.source.startswith(STM_ID)]
        if notes and self._mark_used:
            await self._mark_used(notes)

    async def wrote(self, session: str, written: Written, *, ended: bool = False) -> None:
        """Note that the agent finished a turn with this text, or that the session ended. Then
        decide which of the session's memories were used."""
        if self._watching:
            self._watching.wrote(session, written)
            if ended:
                self._watching.ended(session)
            await self._conclude_uses()

    async def rate(self, ratings: Sequence[Rated]) -> None:
        """Learn from ratings. Raises StoreError if the ratings could not be stored."""
        await self.learned.rate(ratings)
        for rating in ratings:
            tool = without_rater(rating.tool)
            tool = tool if tool != rating.door else ""
            self.counts.add(CountedEvent.RATING, str(rating.rating), door=rating.door, tool=tool)
        if self._mark_used:
            helpful = [rated for rated in ratings if rated.rating is Rating.HELPFUL]
            await self._mark_used([without_rater(rated.memory) for rated in helpful])

    async def _conclude_uses(self) -> None:
        if self._watching:
            await self._watching.flush()
            await self.counts.flush()

    async def _conclude(self, observations: Sequence[Observation]) -> None:
        for observation in observations:
            watched = observation.watched
            tool = watched.tool if watched.tool != watched.door else ""
            self.counts.add(CountedEvent.USE, str(observation.use), door=watched.door, tool=tool)
        if self._mark_used:
            used = [seen.watched.memory for seen in observations if seen.use is MemoryUse.USED]
            await self._mark_used(used)
