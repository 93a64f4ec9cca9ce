"""Fakes that ship, for tests of whoever builds on upwell: a clock to turn, a recall to fill."""

from collections.abc import Sequence

from upwell.ground.limits import Deadline
from upwell.ground.types import Hit, Ping, Query


class ManualClock:
    """Time that moves only when told to. Both kinds of time start at `start` and move together."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._at = start

    def now(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += seconds


class FakeRecall:
    """Gives the hits it was made with, and remembers what it was asked.

    `error` is raised instead, when given.
    """

    name = "fake"

    def __init__(self, hits: Sequence[Hit] = (), error: Exception | None = None) -> None:
        self.hits = list(hits)
        self.error = error
        self.asked: list[Query] = []

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        return self.hits[: query.limit]

    async def ping(self) -> Ping:
        return Ping(ok=self.error is None, detail=str(self.error or ""))
