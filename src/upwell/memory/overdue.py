"""What another memory server answered too late for the search that asked: kept for the next search
that is about the same (DESIGN 4.9), which judges it by its own words."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from upwell.ground.limits import Clock
from upwell.ground.types import Query
from upwell.memory.dialects import Dialect

KEPT_SECONDS = 60.0
"""After a minute it is asked anew."""
MOST_KEPT = 5


@dataclass(frozen=True, slots=True)
class Answers:
    """What a server said to a query, not yet read."""

    dialect: Dialect
    results: tuple[Mapping[str, Any], ...]


class Overdue:
    """What a server still owes, and the latest answers that came too late, each given once.

    `is_slow`: its last answer came late, after `quick_seconds`; nobody should wait for the next.
    `judged` hears of an answer that was not waited for whether it came ("") or why not.
    """

    def __init__(self, quick_seconds: float, judged: Callable[[str], None], clock: Clock) -> None:
        self.is_slow = False
        self._quick_seconds = quick_seconds
        self._judged = judged
        self._clock = clock
        self._owed: set[asyncio.Task[Answers]] = set()
        self._kept: list[tuple[float, Query, Answers]] = []

    @property
    def is_busy(self) -> bool:
        """Is it slow, and about something already?"""
        return self.is_slow and bool(self._owed)

    def expect(self, asking: "asyncio.Task[Answers]", query: Query) -> bool:
        """A search has gone on without this answer. True where it did not wait for it at all."""
        began = self._clock.monotonic() if self.is_slow else None
        self._owed.add(asking)
        asking.add_done_callback(lambda done: self._arrived(done, query, began))
        return began is not None

    async def aclose(self) -> None:
        """Ask for nothing more."""
        owed = list(self._owed)
        for asking in owed:
            asking.cancel()
        await asyncio.gather(*owed, return_exceptions=True)

    def _arrived(self, done: "asyncio.Task[Answers]", query: Query, began: float | None) -> None:
        """`began`: when a search asked that did not wait; one that waited counted as failed."""
        self._owed.discard(done)
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            if began is not None:
                self._judged(str(error or "the memory server did not answer"))
            return
        took = self._clock.monotonic() - began if began is not None else math.inf
        self.is_slow = took > self._quick_seconds
        self._judged("")
        self._keep(query, done.result())

    def _keep(self, query: Query, answers: Answers) -> None:
        self._kept = [*self._kept[1 - MOST_KEPT :], (self._clock.monotonic(), query, answers)]

    def about(self, query: Query) -> Answers | None:
        """What was answered lately to a query about the same files, or in the same words where
        neither names files; the latest."""
        since = self._clock.monotonic() - KEPT_SECONDS
        self._kept = [kept for kept in self._kept if kept[0] >= since]
        for place in reversed(range(len(self._kept))):
            if _about_the_same(self._kept[place][1], query):
                return self._kept.pop(place)[2]
        return None


def _about_the_same(asked: Query, query: Query) -> bool:
    if asked.scope != query.scope:
        return False
    if asked.paths or query.paths:
        return bool(set(asked.paths) & set(query.paths))
    return bool(query.texts) and query.texts == asked.texts
