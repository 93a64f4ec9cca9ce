"""What surfacing learned, and how it learns: thresholds and demotions, what agents use, counts."""

from collections.abc import Awaitable, Callable, Sequence

from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Shelf
from upwell.ground.types import Cue, Memory, Rating, Scope, Skip, Surfacing
from upwell.learn.feedback import Rated
from upwell.learn.implicit import Rare, Verdict, Watching, Written
from upwell.learn.learned import Learned, Limits
from upwell.learn.ratios import LearnOptions
from upwell.learn.thresholds import Use
from upwell.learn.uses import Uses
from upwell.surface.opening import Latest
from upwell.surface.options import SurfaceOptions
from upwell.usage.counts import Counts, Event

Touch = Callable[[Sequence[str]], Awaitable[None]]
"""Hears the ids of memories that were used."""


async def nothing_is_rare(_: Sequence[str]) -> set[str]:
    return set()


async def untouched(_: Sequence[str]) -> None:
    return None


class Lessons:
    """The learning side of one `Surfacer`. Whatever it does on the way of a call is a look at
    something in memory, or a note for later.

    `rare` says which words few memories hold, `used` hears which memories were made use of.
    """

    def __init__(
        self,
        learned: Learned,
        shelf: Shelf,
        options: LearnOptions,
        *,
        rare: Rare = nothing_is_rare,
        used: Touch = untouched,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.learned = learned
        self.counts = Counts(shelf, clock)
        self._used = used
        self._watching = (
            Watching(shelf, Uses(shelf), rare, self._hear, clock)
            if options.implicit_signals
            else None
        )

    @classmethod
    def none(cls, shelf: Shelf, surface: SurfaceOptions, clock: Clock) -> "Lessons":
        """Nothing is learned; what happens is counted."""
        options = LearnOptions(auto_tune=False, implicit_signals=False)
        limits = Limits(min_score=surface.min_score)
        return cls(Learned(None, Uses(shelf), options, limits), shelf, options, clock=clock)

    def work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """What is to be done behind the calls."""
        watching = [self._watching.flush] if self._watching else []
        return (*watching, self.counts.flush, self.learned.take_up)

    def min_score(self, cue: Cue) -> float:
        return self.learned.min_score(_subject(cue))

    def is_demoted(self, memory: str) -> bool:
        return self.learned.is_demoted(memory)

    def welcome(self, latest: Latest) -> Latest:
        """`latest` without what was rated down again and again."""

        async def still(scope: Scope) -> Sequence[Memory]:
            return [one for one in await latest(scope) if not self.is_demoted(one.id)]

        return still

    def noticed(self, cue: Cue, outcome: Surfacing | Skip) -> None:
        """A decision was made."""
        kind = str(outcome.reason) if isinstance(outcome, Skip) else "surfaced"
        said = len(outcome.hits) if isinstance(outcome, Surfacing) else 0
        self.decided(kind, door=str(cue.door), tool=cue.tool or "", memories=said)
        if self._watching:
            self._watching.noticed(cue, outcome)

    def decided(self, outcome: str, *, door: str, tool: str, memories: int) -> None:
        """Count a decision, and the memories that it said."""
        self.counts.add(Event.DECISION, outcome, door=door, tool=tool)
        if memories:
            self.counts.add(Event.SAID, "memories", door=door, tool=tool, by=memories)

    def unsaid(self, surfacing: Surfacing, cue: Cue | None, *, late: bool) -> None:
        """What was decided did not reach the agent: it counts as not said."""
        if cue is not None:
            door, tool = str(cue.door), cue.tool or ""
            self.counts.add(Event.DECISION, "surfaced", door=door, tool=tool, by=-1)
            self.counts.add(Event.SAID, "memories", door=door, tool=tool, by=-len(surfacing.hits))
            self.counts.add(Event.LATE, "missed" if late else "no_reply", door=door, tool=tool)
        if self._watching:
            self._watching.unsaid(surfacing)

    def offered_late(self, cue: Cue) -> None:
        """What had come too late is considered after all."""
        self.counts.add(Event.LATE, "offered", door=str(cue.door), tool=cue.tool or "")

    def shortened(self, tool: str, tokens_before: int, tokens_after: int) -> None:
        """A result of a tool was shortened."""
        for kind, number in (
            ("results", 1),
            ("tokens_before", tokens_before),
            ("tokens_saved", tokens_before - tokens_after),
        ):
            self.counts.add(Event.COMPRESSED, kind, tool=tool, by=number)

    def opened(self, session: str, memory: str) -> None:
        """The agent asked for the whole of a memory."""
        if self._watching:
            self._watching.opened(session, memory)

    async def wrote(self, session: str, written: Written, *, ended: bool = False) -> None:
        """The agent came to the end of a turn in which it wrote this, or of the session: what was
        surfaced is settled by it."""
        if self._watching:
            self._watching.wrote(session, written)
            if ended:
                self._watching.ended(session)
            await self._watching.flush()
            await self.counts.flush()

    async def rate(self, rated: Sequence[Rated]) -> None:
        """Learn from ratings.

        Raises:
            StoreError: they could not be kept.
        """
        await self.learned.rate(rated)
        for one in rated:
            tool = one.tool if one.tool != one.door else ""
            self.counts.add(Event.RATING, str(one.rating), door=one.door, tool=tool)
        await self._used([one.memory for one in rated if one.rating is Rating.HELPFUL])

    async def _hear(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            watched = verdict.watched
            tool = watched.tool if watched.tool != watched.door else ""
            self.counts.add(Event.USE, str(verdict.use), door=watched.door, tool=tool)
        await self._used([one.watched.memory for one in verdicts if one.use is Use.USED])


def _subject(cue: Cue) -> str:
    """What a threshold belongs to: the tool, or the door where there is none."""
    return cue.tool or str(cue.door)
