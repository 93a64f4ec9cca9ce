"""Keeps memories that were found too late for their call, and offers them to a later cue about the
same thing."""

from collections.abc import Sequence

from msgspec import Struct

from upwell.ground.clock import Clock
from upwell.ground.session_state import SessionState
from upwell.ground.types.cue import AUTOMATIC_DOORS, Cue, Door
from upwell.ground.types.memory import Hit, Query
from upwell.memory.recall import MemoryReader

LATE_SECONDS = 60.0
"""How long late hits remain on offer."""


class _Offer(Struct, frozen=True):
    """`changes` records what `MemoryReader.changes()` returned. The hits lapse when it
    returns something else."""

    tool: str | None
    query: Query
    judged: bool
    hits: tuple[Hit, ...]
    changes: str


class LateHits:
    """The late hits of each session. A later cue gets them if it is about one of the same files. If
    neither cue names a file, both must have the same words and the same tool. The hits are offered
    only once, and not after any memory has changed."""

    def __init__(self, reader: MemoryReader, clock: Clock) -> None:
        self._offers = SessionState[_Offer](clock=clock)
        self._reader = reader

    async def keep(
        self, cue: Cue, query: Query, hits: Sequence[Hit], *, judged: bool = False
    ) -> None:
        """Keep the hits that came too late for this cue, except standing rules, which
        `StandingRules` delivers. With `judged`, the session's next call gets the hits, whatever it
        is about."""
        if not cue.session or all(hit.memory.pinned for hit in hits):
            return
        # `changes()` is called before `known()`, so that the hits also lapse if a memory is deleted
        # in between.
        changes = repr(await self._reader.changes())
        existing = [hit for hit in hits if not hit.memory.pinned and await self._exists(hit)]
        offer = _Offer(cue.tool, query, judged, tuple(existing), changes)
        self._offers.put(cue.session, offer, ttl_seconds=LATE_SECONDS)

    async def take(self, cue: Cue, query: Query) -> list[Hit]:
        """The session's late hits for this cue. Any prompt or tool call that is about to search
        ends the offer, because its own search finds the current memories. An explicit request gets
        no late hits."""
        if cue.door not in AUTOMATIC_DOORS or not cue.session:
            return []
        offer = self._offers.pop(cue.session)
        if offer is None or not _is_about_the_same(offer, cue, query):
            return []
        return await self._current(offer)

    async def take_judged(self, cue: Cue) -> tuple[Query, list[Hit]] | None:
        """The query and the hits from a late verdict, if this cue is a call. If any memory has
        changed, there are no hits. A prompt may change the subject, so it gets only what `take()`
        returns."""
        if cue.door != Door.TOOL or not cue.session:
            return None
        offer = self._offers.get(cue.session).get("")
        if offer is None or not offer.judged:
            return None
        self._offers.pop(cue.session)
        return offer.query, await self._current(offer)

    async def _current(self, offer: _Offer) -> list[Hit]:
        return list(offer.hits) if repr(await self._reader.changes()) == offer.changes else []

    async def _exists(self, hit: Hit) -> bool:
        return await self._reader.known(hit.memory.id) is not None


def _is_about_the_same(offer: _Offer, cue: Cue, query: Query) -> bool:
    if set(offer.query.paths) & set(query.paths):
        return True
    same_words = bool(query.texts) and query.texts == offer.query.texts
    return same_words and not (query.paths or offer.query.paths) and cue.tool == offer.tool
