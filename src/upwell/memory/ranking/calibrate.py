"""Turn raw signals into the probability that a memory is relevant, and into the order of hits.

The models are logistic regressions and linear orderings. `benchmarks/calibrate.py` fits them on
development data, and reports the results on unseen stores. The data includes small samples of the
stores, and ordinary events for which no memory is relevant.

A threshold that suits some stores is wrong for others (`docs/decisions.md`). Therefore, each store
is queried with words drawn from unrelated memories, and the best scores are recorded for each
number of words: the null scores, which tell how well the best memory matches by chance. A real
match is judged by how far it is above them, so that a probability of 0.5 means the same in every
store. This needs no labels.

`benchmarks/calibrate.py` prints the coefficients, except for the intercepts, which are shifted, and
`few` and `few_names`. With a threshold of 0.5, a memory would surface in 5 % of the events for
which no memory is relevant. For turns of conversations the rate is 3.5 %, because the fitted
intercept of `turn` is lowered by 0.13. `few` and `few_names` keep these rates in stores of fewer
than 500 memories. They were set by hand, because samples of that size have too few positives for a
fit.
"""

import math
import random
from collections.abc import Mapping, Sequence

from msgspec import Struct

from upwell.memory.ranking.terms import LEAST_MEMORIES, Corpus


class Coefficients(Struct, frozen=True):
    """Logistic regressions and linear orderings (listwise softmax). Notes and turns of a
    conversation have separate models, because their words are distributed differently."""

    note: Mapping[str, float]
    turn: Mapping[str, float]
    note_order: Mapping[str, float]
    turn_order: Mapping[str, float]


BY_WORDS = Coefficients(
    note={
        "intercept": -3.725,
        "bm25": 0.343,
        "per_term": -0.13,
        "margin": -0.332,
        "coverage": 1.149,
        "mass": -0.188,
        "vocabulary": 2.217,
        "words": 0.479,
        "path": 2.012,
        "path_tail": 1.492,
        "path_named": 3.26,
        "path_focus": 9.589,
        "symbol": 2.24,
        "matched": -1.939,
        "rarest": 0.261,
        "single": 1.739,
        "single_rare": -3.981,
        "lift": 0.13,
        "ratio": 3.595,
        "path_any": 0.072,
        "path_coverage": -0.9,
        "coverage_words": 0.484,
        "path_squared": -3.093,
        "telling": 1.817,
        "none_telling": -0.474,
        "telling_share": -1.43,
        "small": -0.099,
        "small_telling": -0.21,
        "small_coverage": 0.104,
        "few": 0.6,
        "few_names": 3.0,
    },
    turn={
        "intercept": -6.09,
        "bm25": -0.673,
        "per_term": 0.07,
        "margin": 0.307,
        "coverage": -1.06,
        "mass": 0.9,
        "vocabulary": 0.701,
        "words": -2.654,
        "window": 0.662,
        "matched": 1.812,
        "rarest": 1.4,
        "single": 0.591,
        "single_rare": -0.505,
        "lift": 0.184,
        "ratio": -0.811,
        "window_ratio": 1.25,
        "speaker": 2.481,
        "coverage_words": 0.896,
        "telling": 0.171,
        "none_telling": -0.829,
        "telling_share": 0.383,
        "small": -0.523,
        "small_telling": 0.072,
        "small_coverage": 0.603,
        "few": 0.3,
    },
    note_order={
        "bm25": 3.88,
        "coverage": 2.56,
        "path": 1.65,
        "path_tail": 0.88,
        "path_named": 3.16,
        "path_focus": 1.87,
        "symbol": 0.69,
        "rarest": 2.45,
        "matched_share": 2.6,
        "path_full": 1.06,
        "path_join": 2.03,
    },
    turn_order={
        "bm25": -0.74,
        "window": 2.7,
        "speaker_bm25": -0.35,
        "speaker": 2.78,
        "coverage": 1.68,
        "rarest": 1.77,
        "matched_share": 1.58,
    },
)
"""The coefficients for use without an embedder."""

BY_MEANING = Coefficients(
    note={
        "intercept": -6.864,
        "bm25": 0.764,
        "per_term": -0.119,
        "margin": -0.21,
        "coverage": 2.416,
        "mass": 0.436,
        "vocabulary": 1.457,
        "words": 0.368,
        "path": 1.048,
        "path_tail": 1.373,
        "path_named": 2.763,
        "path_focus": 10.927,
        "symbol": 2.018,
        "matched": -1.54,
        "rarest": 0.168,
        "single": 1.265,
        "single_rare": -3.535,
        "lift": 0.179,
        "ratio": 1.41,
        "path_any": -0.151,
        "path_coverage": -1.492,
        "coverage_words": 0.004,
        "path_squared": -2.196,
        "telling": 1.418,
        "none_telling": -0.531,
        "telling_share": -0.888,
        "small": -0.249,
        "small_telling": -0.289,
        "small_coverage": 0.164,
        "meaning": 0.667,
        "meaning_squared": -0.036,
        "meaning_margin": 0.167,
        "meaning_coverage": -0.314,
        "small_meaning": 0.122,
        "meaning_path": 0.667,
        "few": 0.3,
        "few_names": 3.0,
    },
    turn={
        "intercept": -6.521,
        "bm25": -0.996,
        "per_term": 0.038,
        "margin": 0.17,
        "coverage": -0.475,
        "mass": 0.887,
        "vocabulary": 0.507,
        "words": -2.463,
        "window": 0.469,
        "matched": 1.943,
        "rarest": 2.267,
        "single": 0.694,
        "single_rare": -0.955,
        "lift": 0.199,
        "ratio": -1.295,
        "window_ratio": 0.867,
        "speaker": 2.231,
        "coverage_words": 2.057,
        "telling": -0.334,
        "none_telling": -0.831,
        "telling_share": 0.388,
        "small": -0.496,
        "small_telling": -0.018,
        "small_coverage": 0.357,
        "meaning": 0.72,
        "meaning_squared": -0.028,
        "meaning_margin": 0.163,
        "meaning_coverage": -0.748,
        "small_meaning": 0.223,
        "meaning_near": 0.145,
        "few": 0.3,
    },
    note_order={
        "bm25": 2.84,
        "coverage": 1.73,
        "path": 1.84,
        "path_tail": 1.04,
        "path_named": 2.55,
        "path_focus": 2.22,
        "symbol": 1.14,
        "rarest": 3.59,
        "matched_share": 0.87,
        "path_full": 1.33,
        "path_join": 2.1,
        "meaning": 0.78,
        "meaning_margin": -0.32,
    },
    turn_order={
        "bm25": 0.27,
        "window": 1.97,
        "speaker_bm25": 0.24,
        "speaker": 2.24,
        "coverage": 1.43,
        "rarest": 0.54,
        "matched_share": 1.34,
        "meaning": 0.59,
        "meaning_margin": -0.18,
        "meaning_near": 0.47,
    },
)
"""The coefficients for use with an embedder, fitted with all-MiniLM-L6-v2. The features for meaning
are deviations from the store's mean cosine, so the fit is close for other embedders too."""


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
