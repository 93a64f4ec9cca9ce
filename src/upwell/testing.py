"""Fakes for testing code built on upwell: a manual clock, an embedder, a source of memories."""

import random
import re
from collections.abc import Hashable, Mapping, Sequence

from upwell.ground.clock import Deadline
from upwell.ground.errors import LlmError
from upwell.ground.llm import unit
from upwell.ground.types.memory import Found, Hit, Memory, Query, Scope
from upwell.ground.types.rpc import Ping


class ManualClock:
    """A clock that moves only when `advance()` is called. Its wall and monotonic time are equal."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._at = start

    def now(self) -> float:
        return self._at

    def monotonic(self) -> float:
        return self._at

    def advance(self, seconds: float) -> None:
        self._at += seconds


class FakeEmbedder:
    """An embedder for tests. Two texts are similar if they share words; `same` maps words to
    synonyms. If `error` is given, every call raises an `LlmError` with that message. Embedders with
    different names return different vectors.
    """

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
    """A `Recall` and a `MemoryReader` that return the given hits, rules and memories, whatever the
    query or scope. `asked` contains the queries so far. If `error` is given, every search raises
    it. `changes()` returns `version`.
    """

    name = "fake"

    def __init__(
        self,
        hits: Sequence[Hit] = (),
        error: Exception | None = None,
        *,
        rules: Sequence[Memory] = (),
        memories: Sequence[Memory] = (),
    ) -> None:
        self.hits = list(hits)
        self.error = error
        self.rules = list(rules)
        self.memories = list(memories)
        self.version = 0
        self.asked: list[Query] = []

    async def search(self, query: Query, deadline: Deadline) -> Found:
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        return Found(tuple(self.hits[: query.limit]))

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        return self.rules[:limit]

    async def latest(self, scope: Scope, *, limit: int = 100) -> Sequence[Memory]:
        return self.memories[:limit]

    async def known(self, memory_id: str) -> Memory | None:
        known = (*self.memories, *self.rules, *(hit.memory for hit in self.hits))
        return next((memory for memory in known if memory.id == memory_id), None)

    async def changes(self) -> Hashable:
        return self.version

    async def ping(self) -> Ping:
        return Ping(ok=self.error is None, detail=str(self.error or ""))
