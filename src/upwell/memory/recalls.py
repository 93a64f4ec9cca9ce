"""Several places to recall from, as one."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache

from upwell.ground.errors import RecallUnavailable, UpwellError
from upwell.ground.limits import Deadline
from upwell.ground.text.words import jaccard, terms
from upwell.ground.trace import LOG
from upwell.ground.types import Hit, Ping, Query
from upwell.memory.base import Recall

NEARLY_THE_SAME = 0.9
LIKE_LENGTHS = 0.7
"""Texts whose lengths differ by more do not say the same."""
MAX_COMPARED = 100
"""Of so many of the best it is looked whether two places say the same."""


class Recalls:
    """`Recall` over `places`: asked all at once, put in one order by their calibrated scores.

    One that fails or is late is left out. What two places say in nearly the same words
    is said once. `missing` are those that the latest search did without, each with its reason.
    """

    name = "recalls"

    def __init__(self, places: Sequence[Recall]) -> None:
        self.places = tuple(places)
        self.missing: tuple[str, ...] = ()

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """The best of every place.

        Raises:
            RecallUnavailable: every place failed.
        """
        loop = asyncio.get_running_loop()
        tasks = [
            asyncio.Task(place.search(query, deadline), loop=loop, eager_start=True)
            for place in self.places
        ]
        await _ended(tasks, deadline)
        found: list[tuple[Hit, int]] = []
        failures: list[UpwellError] = []
        missing: list[str] = []
        for number, (place, task) in enumerate(zip(self.places, tasks, strict=True)):
            if task.cancelled():
                missing.append(f"{place.name}: it took too long")
                continue
            error = task.exception()
            if error is None:
                found += [(hit, number) for hit in task.result()]
            elif isinstance(error, UpwellError):
                failures.append(error)
                missing.append(f"{place.name}: {error.message}")
            else:
                raise error
        self._note(missing)
        if len(failures) == len(self.places):
            first = failures[0]
            raise RecallUnavailable(first.message, source=self.name, hint=first.hint)
        return merged(found)[: query.limit]

    def _note(self, missing: Sequence[str]) -> None:
        """The log hears what is missing when it was not, not once a search."""
        for place in missing:
            if place not in self.missing:
                LOG.warning("searched without %s", place)
        self.missing = tuple(missing)

    async def ping(self) -> Ping:
        """Ok while one place is."""
        pings = [(place.name, await place.ping()) for place in self.places]
        failed = [(name, ping) for name, ping in pings if not ping.ok]
        detail = "; ".join(f"{name}: {ping.detail}" for name, ping in pings)
        hint = failed[0][1].hint if failed else ""
        return Ping(ok=len(failed) < len(pings), detail=detail, hint=hint)


async def _ended(tasks: Sequence["asyncio.Task[list[Hit]]"], deadline: Deadline) -> None:
    """All of them, by themselves or at the deadline. Most have ended as they began."""
    if all(task.done() for task in tasks):
        return
    try:
        await asyncio.wait(tasks, timeout=max(deadline.remaining(), 0.001))
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def merged(found: Sequence[tuple[Hit, int]]) -> list[Hit]:
    """Hits with the number of their place, most probable first, each thing once."""
    ordered = sorted(found, key=lambda pair: -pair[0].score)
    if len({place for _, place in ordered}) < 2:
        return [hit for hit, _ in ordered]
    kept: list[tuple[Hit, int]] = []
    for hit, place in ordered:
        if not any(
            other != place and _say_the_same(hit.memory.text, one.memory.text)
            for one, other in kept[:MAX_COMPARED]
        ):
            kept.append((hit, place))
    return [hit for hit, _ in kept]


def _say_the_same(left: str, right: str) -> bool:
    shorter, longer = sorted((len(left), len(right)))
    if shorter < LIKE_LENGTHS * longer:
        return False
    return left == right or jaccard(_words(left), _words(right)) >= NEARLY_THE_SAME


@lru_cache(maxsize=512)
def _words(text: str) -> frozenset[str]:
    return frozenset(terms(text))
