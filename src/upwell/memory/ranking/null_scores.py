"""The null distribution of a store's scores: how well its best memory matches by chance.

A threshold that suits some stores is wrong for others (`docs/decisions.md`). Therefore, each store
is queried with words drawn from unrelated memories, and the best scores are recorded for each
number of words. A real match is judged by how far it is above these scores. This method needs no
labels.
"""

import math
from collections.abc import Sequence

from msgspec import Struct

from upwell.memory.ranking.query import Corpus

SIZES = (1, 2, 4, 8, 16)
"""The numbers of words in the random queries."""
SAMPLES = 30
"""The number of random queries of each size."""
LEAST_MEMORIES = 20
"""Stores with fewer memories are not measured; they use the usual distribution."""
GROWTH = 1.5
"""A store is measured again when it has grown by this factor."""
USUAL_MEAN = (0.72, 0.98, 1.25, 1.57, 2.06)
USUAL_SPREAD = (0.30, 0.22, 0.21, 0.24, 0.28)
"""The usual null scores for each number of words in `SIZES`, averaged over the development stores.
The unit is the idf of a word that only one memory has."""
_MIN_SPREAD = 0.1


class NullScores(Struct, frozen=True):
    """The mean and spread of the best BM25 scores of unrelated queries, for each size in
    `SIZES`."""

    mean: tuple[float, ...]
    spread: tuple[float, ...]

    def at(self, words: float) -> tuple[float, float]:
        """Return the mean and spread for a query with this many known words, interpolated between
        `SIZES`."""
        position = math.log2(min(max(words, 1.0), float(SIZES[-1])))
        low = min(int(position), len(SIZES) - 2)
        share = position - low
        mean, spread = (
            figures[low] * (1.0 - share) + figures[low + 1] * share
            for figures in (self.mean, self.spread)
        )
        return mean, spread


def usual(corpus: Corpus) -> NullScores:
    """Return the usual distribution in a corpus of this size."""
    unit = corpus.idf(1)
    return NullScores(
        tuple(unit * share for share in USUAL_MEAN), tuple(unit * share for share in USUAL_SPREAD)
    )


def mean_and_spread(scores: Sequence[float]) -> tuple[float, float]:
    """Return the mean and standard deviation of the scores for one size. The deviation is at least
    0.1."""
    mean = sum(scores) / len(scores)
    variance = sum((score - mean) ** 2 for score in scores) / len(scores)
    return mean, max(_MIN_SPREAD, math.sqrt(variance))
