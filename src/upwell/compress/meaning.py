"""What a question means, where an embedder is configured: finds what shares no word with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from upwell.ground.embed import Embedder, Vector, cosine
from upwell.ground.errors import LlmError

MAX_UNITS = 1_500
"""Units that are compared with the question: those that say most by themselves."""
_UNIT_CHARS = 400
_STANDS_OUT = 1.0
_WEIGHT = 0.5
"""How many deviations above the mean count, and what the best match by meaning is worth beside
the best by words."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """A question as a vector, and who made it."""

    vector: Vector
    embedder: Embedder

    def add_to(
        self, asked: dict[int, float], needed: Sequence[float], says: Callable[[int], str]
    ) -> None:
        """Raise in `asked` the units that mean what the question does. An embedder that fails
        changes nothing."""
        units = sorted(range(len(needed)), key=needed.__getitem__, reverse=True)[:MAX_UNITS]
        units = sorted(set(units) | set(sorted(asked, key=lambda u: -asked[u])[:MAX_UNITS]))
        try:
            vectors = self.embedder.embed([says(unit)[:_UNIT_CHARS] for unit in units])
        except LlmError:
            return
        likeness = [cosine(self.vector, vector) for vector in vectors]
        middle, spread = fmean(likeness), pstdev(likeness)
        if not spread:
            return
        standing = [max(0.0, (like - middle) / spread - _STANDS_OUT) for like in likeness]
        best = max(standing)
        top = max(asked.values(), default=1.0)
        for unit, stands in zip(units, standing, strict=True):
            if stands > 0.0:
                asked[unit] = asked.get(unit, 0.0) + _WEIGHT * top * stands / best


def meaning_of(query: str, embedder: Embedder | None) -> Meaning | None:
    """The meaning of `query`; None without a query or a working embedder."""
    if embedder is None or not query.strip():
        return None
    try:
        return Meaning(embedder.embed([query])[0], embedder)
    except LlmError:
        return None
