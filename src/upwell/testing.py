"""Fakes that ship, for tests of whoever builds on upwell: a clock to turn, a recall to fill."""

import random
import re
from collections.abc import Mapping, Sequence

from upwell.ground.embed import unit
from upwell.ground.errors import LlmError
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


class FakeEmbedder:
    """An embedder for tests: texts are alike as far as they share words. Words that `same` maps to
    one word mean one thing. `error` is raised instead, when given; `name` tells models apart."""

    dim = 128

    def __init__(
        self, same: Mapping[str, str] | None = None, *, name: str = "fake", error: str = ""
    ) -> None:
        self.name = name
        self.error = error
        self.asked: list[str] = []
        self._same = dict(same or {})

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        self.asked += texts
        if self.error:
            raise LlmError(self.error)
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Sequence[float]:
        total = [0.0] * self.dim
        for word in re.findall(r"\w+", text.lower()):
            rng = random.Random(f"{self.name}:{self._same.get(word, word)}")
            total = [number + rng.gauss(0.0, 1.0) for number in total]
        return unit(total)


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
