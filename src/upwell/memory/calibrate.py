"""From raw signals to the probability that a memory is relevant, and to the order of hits.

Two logistic regressions, one for notes and one for turns of a conversation, whose words behave
differently; and two linear orderings (listwise softmax). `benchmarks/calibrate.py` fits them on
development data with negatives of the same style and on small samples of the same stores, and
prints how they do on stores they have not seen. A score of 0.5 is where 5 % of the events with
nothing relevant would be answered; each store brings its own measure of chance
(`memory/background.py`), which keeps that point in place from store to store. `few` and `few_names`
keep it there in stores of less than 500 memories, where the sample has too few positives to tell;
they were set by hand.
"""

import math
from collections.abc import Mapping

from upwell.memory.query import LEAST_MEMORIES

NOTE: Mapping[str, float] = {
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
}
TURN: Mapping[str, float] = {
    "intercept": -5.959,
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
}
NOTE_ORDER: Mapping[str, float] = {
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
}
TURN_ORDER: Mapping[str, float] = {
    "bm25": -0.74,
    "window": 2.7,
    "speaker_bm25": -0.35,
    "speaker": 2.78,
    "coverage": 1.68,
    "rarest": 1.77,
    "matched_share": 1.58,
}


def features(signals: Mapping[str, float]) -> dict[str, float]:
    """The signals on scales on which a straight line fits."""
    get = signals.get
    bm25, coverage = get("bm25", 0.0), get("idf_coverage", 0.0)
    words, matched = get("informative_words", 0.0), get("matched_words", 0.0)
    telling, rarest = get("telling_words", 0.0), get("rarest", 0.0)
    chance, spread = get("chance", 0.0), max(0.1, get("chance_spread", 1.0))
    single = float(matched <= 1.0)
    small = max(0.0, math.log(LEAST_MEMORIES / max(1.0, get("memories", LEAST_MEMORIES))))
    path = get("path_join", 0.0) * get("path_rarity", 0.0)
    return {
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
    }


def order_features(signals: Mapping[str, float]) -> dict[str, float]:
    """What hits of one query are compared by: BM25 in units of what chance gives."""
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
    }


def probability(signals: Mapping[str, float]) -> float:
    """How probable it is, in 0..1, that a memory with these signals is relevant."""
    weights = TURN if signals.get("turn") else NOTE
    logit = weights["intercept"] + _dot(weights, features(signals))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


def relevance(signals: Mapping[str, float]) -> float:
    """What hits of one query are ordered by; means nothing beyond that."""
    weights = TURN_ORDER if signals.get("turn") else NOTE_ORDER
    return _dot(weights, order_features(signals))


def _dot(weights: Mapping[str, float], values: Mapping[str, float]) -> float:
    return sum(weights.get(name, 0.0) * value for name, value in values.items())
