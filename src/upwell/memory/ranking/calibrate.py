"""Turn raw signals into the probability that a memory is relevant, and into the order of hits.

The models are logistic regressions and linear orderings (`memory/ranking/coefficients.py`).
`benchmarks/calibrate.py` fits them on development data, and reports the results on unseen stores.
The data includes small samples of the stores, and ordinary events for which no memory is relevant.

A threshold that suits some stores is wrong for others (`docs/decisions.md`). Therefore, each store
is queried with words drawn from unrelated memories, and the best scores are recorded for each
number of words: the null scores, which tell how well the best memory matches by chance. A real
match is judged by how far it is above them, so that a probability of 0.5 means the same in every
store. This needs no labels.
"""

import math
import random
from collections.abc import Mapping, Sequence

from msgspec import Struct

from upwell.memory.ranking.coefficients import BY_MEANING, BY_WORDS, Coefficients
from upwell.memory.ranking.terms import LEAST_MEMORIES, Corpus

SIZES = (1, 2, 4, 8, 16)
"""The numbers of words in the random queries."""
SAMPLES = 30
"""The number of random queries of each size."""
LEAST_MEASURED = 20
"""Stores with fewer memories are not measured; they use the usual distribution."""
GROWTH = 1.5
"""A store is measured again when it has grown by this factor."""
BEST_OF = 5
"""The best score of a random query is the best of its first matches, this many."""
MAX_SAMPLE_CHARS = 2_000
"""The random words come from the beginnings of memories."""
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


def is_due(memories: int, before: int | None) -> bool:
    """Return whether to measure a scope that has this many memories, and had `before` when it was
    last measured (None: never)."""
    return memories >= LEAST_MEASURED and (before is None or memories > GROWTH * before)


def random_queries(samples: Sequence[Sequence[str]], words: int) -> list[str]:
    """Return `SAMPLES` queries, each with this number of words from `samples`, the words of some
    memories."""
    rng = random.Random(words)
    return [" ".join(rng.choice(rng.choice(samples)) for _ in range(words)) for _ in range(SAMPLES)]


def mean_and_spread(scores: Sequence[float]) -> tuple[float, float]:
    """Return the mean and standard deviation of the scores for one size. The deviation is at least
    0.1."""
    mean = sum(scores) / len(scores)
    variance = sum((score - mean) ** 2 for score in scores) / len(scores)
    return mean, max(_MIN_SPREAD, math.sqrt(variance))


def features(signals: Mapping[str, float]) -> dict[str, float]:
    """Scale the signals so that a linear model fits them."""
    get = signals.get
    bm25, coverage = get("bm25", 0.0), get("idf_coverage", 0.0)
    words, matched = get("informative_words", 0.0), get("matched_words", 0.0)
    telling, rarest = get("telling_words", 0.0), get("rarest", 0.0)
    chance, spread = get("chance", 0.0), max(0.1, get("chance_spread", 1.0))
    single = float(matched <= 1.0)
    small = max(0.0, math.log(LEAST_MEMORIES / max(1.0, get("memories", LEAST_MEMORIES))))
    path = get("path_join", 0.0) * get("path_rarity", 0.0)
    meaning = max(-2.0, min(6.0, get("meaning", 0.0)))
    return {
        "intercept": 1.0,
        "bm25": math.log1p(bm25),
        "per_term": get("bm25_per_term", 0.0),
        "margin": math.log1p(max(0.0, get("margin", 0.0))),
        "coverage": coverage,
        "mass": math.log1p(get("coverage_mass", 0.0)),
        "vocabulary": get("in_vocabulary", 0.0),
        "words": math.log1p(words),
        "window": math.log1p(get("window", 0.0)),
        "matched": math.log1p(matched),
        "rarest": rarest,
        "single": single,
        "single_rare": single * rarest,
        "telling": math.log1p(telling),
        "none_telling": float(telling == 0.0),
        "telling_share": telling / max(1.0, words),
        "small": small,
        "small_telling": small * math.log1p(telling),
        "small_coverage": small * coverage,
        "few": min(2.5, small),
        "few_names": min(2.5, small) / 2.5 * get("name_rarity", 0.0),
        "lift": max(-4.0, min(8.0, (bm25 - chance) / spread)),
        "ratio": math.log((bm25 + 1.0) / (chance + 1.0)),
        "window_ratio": math.log((get("window", 0.0) + 1.0) / (chance + 1.0)),
        "coverage_words": coverage * math.log1p(words),
        "speaker": get("speaker", 0.0),
        "path": path,
        "path_squared": path * path,
        "path_tail": float(get("path_join", 0.0) >= 0.8),
        "path_named": get("path_named", 0.0) * path,
        "path_focus": get("path_focus", 0.0) * path,
        "path_any": float(path > 0.0),
        "path_coverage": path * coverage,
        "symbol": get("symbol_join", 0.0) * get("symbol_rarity", 0.0),
        "meaning": meaning,
        "meaning_squared": meaning * meaning,
        "meaning_margin": max(-1.0, min(4.0, get("meaning_margin", 0.0))),
        "meaning_near": max(0.0, min(6.0, get("meaning_near", 0.0))),
        "meaning_coverage": meaning * coverage,
        "meaning_path": meaning * path,
        "small_meaning": small * meaning,
    }


def order_features(signals: Mapping[str, float]) -> dict[str, float]:
    """Return the features that order the hits of a query. BM25 is in units of the null score."""
    get = signals.get
    unit = max(1.0, get("chance", 0.0))
    bm25, speaker = get("bm25", 0.0) / unit, get("speaker", 0.0)
    rarity, join = get("path_rarity", 0.0), get("path_join", 0.0)
    path = join * rarity
    return {
        "bm25": bm25,
        "window": get("window", 0.0) / unit,
        "speaker": speaker,
        "speaker_bm25": speaker * bm25,
        "coverage": get("idf_coverage", 0.0),
        "rarest": get("rarest", 0.0),
        "matched_share": get("matched_words", 0.0) / max(1.0, get("informative_words", 0.0)),
        "path": path,
        "path_join": join,
        "path_tail": float(join >= 0.8) * rarity,
        "path_full": float(join == 1.0),
        "path_named": get("path_named", 0.0) * path,
        "path_focus": get("path_focus", 0.0) * path,
        "symbol": get("symbol_join", 0.0) * get("symbol_rarity", 0.0),
        "meaning": max(-2.0, min(6.0, get("meaning", 0.0))),
        "meaning_margin": max(-1.0, min(4.0, get("meaning_margin", 0.0))),
        "meaning_near": max(0.0, min(6.0, get("meaning_near", 0.0))),
    }


def probability(signals: Mapping[str, float]) -> float:
    """Return the probability, in 0..1, that a memory with these signals is relevant."""
    fitted = _fitted(signals)
    weights = fitted.turn if signals.get("turn") else fitted.note
    logit = _dot(weights, features(signals))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


ASKED_SHARE = 0.9
"""For an explicit request, the probability of a hit with a telling word is at least this share of
its `idf_coverage`. The share is less than 1 because no hit is certain. For development questions
whose answer is in memory, the first hit was the answer about as often as its `idf_coverage`
suggests: in 85 % of the cases with a coverage of .7 or more, in 55 % with .5, and in 35 % with
.3."""


def asked_probability(signals: Mapping[str, float]) -> float:
    """Return the probability that a memory with these signals answers an explicit request. A
    memory that contains the words of the question is likely to be the answer, but everyday words
    alone do not count."""
    covered = signals.get("idf_coverage", 0.0) if signals.get("telling_words") else 0.0
    return max(probability(signals), ASKED_SHARE * covered)


def relevance(signals: Mapping[str, float]) -> float:
    """Return the figure that orders the hits of a query. It cannot be compared across queries."""
    fitted = _fitted(signals)
    weights = fitted.turn_order if signals.get("turn") else fitted.note_order
    return _dot(weights, order_features(signals))


def _fitted(signals: Mapping[str, float]) -> Coefficients:
    return BY_MEANING if "meaning" in signals else BY_WORDS


def _dot(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    return sum([weight * values[name] for name, weight in weights.items()])
