"""Memories that missed the race are not wasted: what came too late for its call is offered at the
next call of the session that is about the same thing (DESIGN 4.9)."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from upwell.ground.limits import Clock
from upwell.ground.types import AUTOMATIC_DOORS, Cue, Hit, Query

KEPT_SECONDS = 60.0
"""After a minute the search is made again."""
_SESSIONS_KEPT = 500

Version = Callable[[], Awaitable[tuple[int, int]]]
"""Differs when somebody has changed the memory: what was found may have been forgotten."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What was found for a cue, at a moment."""

    tool: str | None
    query: Query
    hits: tuple[Hit, ...]
    version: tuple[int, int]
    at: float


class Late:
    """One offer a session: the latest that came too late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offers: OrderedDict[str, _Offer] = OrderedDict()

    def keep(self, cue: Cue, query: Query, hits: Sequence[Hit], version: tuple[int, int]) -> None:
        """These were found for the cue, too late, in this version of the memory. Standing rules
        have a way of their own."""
        found = tuple(hit for hit in hits if not hit.memory.pinned)
        if not cue.session or not found:
            return
        self._offers.pop(cue.session, None)
        self._offers[cue.session] = _Offer(cue.tool, query, found, version, self._clock.monotonic())
        if len(self._offers) > _SESSIONS_KEPT:
            self._offers.popitem(last=False)

    async def offered(self, cue: Cue, query: Query, version: Version) -> list[Hit]:
        """What is kept for the cue's session, once, when this cue is about the same and nobody has
        changed the memory since; else nothing, and the search that follows says what bears on
        it."""
        if cue.door not in AUTOMATIC_DOORS:
            return []
        offer = self._offers.pop(cue.session, None)
        if offer is None or self._clock.monotonic() - offer.at > KEPT_SECONDS:
            return []
        if not _about_the_same(offer, cue, query) or await version() != offer.version:
            return []
        return list(offer.hits)


def _about_the_same(offer: _Offer, cue: Cue, query: Query) -> bool:
    if set(offer.query.paths) & set(query.paths):
        return True
    same_words = bool(query.texts) and query.texts == offer.query.texts
    return same_words and not (query.paths or offer.query.paths) and cue.tool == offer.tool
