"""Which of the memories found are said: those that are probable enough, new, and welcome."""

from collections.abc import Sequence

from upwell.ground.limits import Clock
from upwell.ground.types import AUTOMATIC_DOORS, Cue, Hit, Intent, Skip, SkipReason
from upwell.surface.lessons import Lessons
from upwell.surface.options import Options
from upwell.surface.rank import ranked
from upwell.surface.seen import Seen


class Sieve:
    """The gates behind the search, in order. Who asked meets the first of them only."""

    def __init__(self, options: Options, lessons: Lessons, seen: Seen, clock: Clock) -> None:
        self._options = options
        self._lessons = lessons
        self._seen = seen
        self._clock = clock

    async def sift(self, cue: Cue, found: Sequence[Hit], intent: Intent) -> list[Hit] | Skip:
        """What is left of `found`, in the order to say it, or the gate that held the rest back."""
        threshold = self._lessons.min_score(cue)
        worth = [hit for hit in found if hit.score >= threshold]
        if not worth:
            best = max(hit.score for hit in found)
            detail = f"best {best:.2f} < {threshold:.2f}"
            return _held_back(SkipReason.BELOW_MIN_SCORE, detail, found)
        ordered = ranked(worth, intent, self._options.beside(cue), self._clock.now())
        if cue.door not in AUTOMATIC_DOORS:
            return ordered
        fresh = await self._seen.fresh(ordered, cue.session, cue.principal.name)
        if not fresh:
            return _held_back(SkipReason.REPEATED, f"{len(ordered)} said before", ordered)
        welcome = [hit for hit in fresh if not self._lessons.is_demoted(hit.memory.id)]
        if not welcome:
            return _held_back(SkipReason.DEMOTED, f"{len(fresh)} rated down", fresh)
        return welcome


def _held_back(reason: SkipReason, detail: str, hits: Sequence[Hit]) -> Skip:
    best = max(hits, key=lambda hit: hit.score)
    return Skip(
        reason=reason,
        detail=detail,
        confidence=best.score,
        signals=best.signals,
        held_back=tuple(hits),
    )
