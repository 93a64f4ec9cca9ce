"""From raw signals to the probability that a memory is relevant, and to the order of hits.

Two logistic regressions, one for notes and one for turns of a conversation, whose words behave
differently; and two linear orderings (listwise softmax). `benchmarks/calibrate.py` fits them on
development data with negatives of the same style and on small samples of the same stores, and
prints how they do on stores they have not seen. A score of 0.5 is where 5 % of the events with
nothing relevant would be answered; each store brings its own measure of chance
(`memory/background.py`), which keeps that point in place from store to store.
"""

import math
from collections.abc import Mapping

NOTE: Mapping[str, float] = {
    "intercept": -5.086,
    "bm25": 0.593,
    "per_term": -0.297,
    "margin": -0.197,
    "coverage": 3.126,
    "mass": -0.748,
    "vocabulary": 2.158,
    "words": 0.899,
    "matched": -0.469,
    "rarest": 0.031,
    "single": 1.211,
    "single_rare": -3.345,
    "telling": 1.856,
    "none_telling": -0.405,
    "telling_share": -0.403,
    "lift": 0.204,
    "ratio": 2.829,
    "coverage_words": -0.828,
    "path": 0.82,
    "path_squared": -1.998,
    "path_tail": 1.051,
    "path_named": 1.755,
    "path_focus": 9.939,
    "path_any": 0.052,
    "path_coverage": -0.517,
    "symbol": 1.553,
}
TURN: Mapping[str, float] = {
    "intercept": -7.988,
    "bm25": 0.459,
    "per_term": 0.32,
    "margin": 0.407,
    "coverage": -1.475,
    "mass": 0.495,
    "vocabulary": 0.184,
    "words": -2.464,
    "window": 1.849,
    "matched": 1.195,
    "rarest": 0.504,
    "single": 0.668,
    "single_rare": -2.706,
    "telling": 0.278,
    "none_telling": -1.594,
    "telling_share": 0.996,
    "lift": 0.176,
    "ratio": -1.532,
    "window_ratio": -0.742,
    "coverage_words": 1.265,
    "speaker": 1.362,
}
NOTE_ORDER: Mapping[str, float] = {
    "bm25": 4.09,
    "coverage": 2.56,
    "rarest": 2.64,
    "matched_share": 2.61,
    "path": 1.69,
    "path_join": 2.04,
    "path_tail": 0.91,
    "path_full": 1.07,
    "path_named": 3.14,
    "path_focus": 1.82,
    "symbol": 0.69,
}
TURN_ORDER: Mapping[str, float] = {
    "bm25": -0.73,
    "window": 2.78,
    "coverage": 1.62,
    "rarest": 1.88,
    "matched_share": 1.4,
    "speaker": 3.01,
    "speaker_bm25": -0.34,
}


def features(signals: Mapping[str, float]) -> dict[str, float]:
    """The signals on scales on which a straight line fits."""
    get = signals.get
    bm25, coverage = get("bm25", 0.0), get("idf_coverage", 0.0)
    words, matched = get("informative_words", 0.0), get("matched_words", 0.0)
    telling, rarest = get("telling_words", 0.0), get("rarest", 0.0)
    chance, spread = get("chance", 0.0), max(0.1, get("chance_spread", 1.0))
    single = float(matched <= 1.0)
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
