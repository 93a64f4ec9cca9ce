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
    "intercept": -4.824,
    "bm25": 1.082,
    "per_term": -0.302,
    "margin": -0.297,
    "coverage": 3.03,
    "mass": -0.629,
    "vocabulary": 1.727,
    "words": 0.478,
    "path": 1.508,
    "path_tail": 0.734,
    "path_named": 1.876,
    "path_focus": 9.539,
    "symbol": 1.566,
    "matched": -0.918,
    "rarest": -0.184,
    "single": 0.787,
    "single_rare": -3.089,
    "lift": 0.192,
    "ratio": 2.626,
    "path_any": 0.25,
    "path_coverage": 0.216,
    "coverage_words": -0.72,
    "path_squared": -3.058,
    "telling": 2.339,
    "none_telling": -0.181,
    "telling_share": -0.852,
}
TURN: Mapping[str, float] = {
    "intercept": -5.542,
    "bm25": -0.776,
    "per_term": -0.103,
    "margin": 0.319,
    "coverage": -1.352,
    "mass": 0.75,
    "vocabulary": 1.238,
    "words": -2.686,
    "window": 0.593,
    "matched": 1.974,
    "rarest": 1.235,
    "single": 0.338,
    "single_rare": -1.277,
    "lift": 0.218,
    "ratio": -0.826,
    "window_ratio": 1.422,
    "speaker": 2.544,
    "coverage_words": 1.142,
    "telling": -0.091,
    "none_telling": -1.093,
    "telling_share": 0.683,
}
NOTE_ORDER: Mapping[str, float] = {
    "bm25": 4.02,
    "coverage": 2.61,
    "path": 1.69,
    "path_tail": 0.92,
    "path_named": 3.13,
    "path_focus": 1.85,
    "symbol": 0.67,
    "rarest": 2.63,
    "matched_share": 2.69,
    "path_full": 1.08,
    "path_join": 2.04,
}
TURN_ORDER: Mapping[str, float] = {
    "bm25": -0.71,
    "window": 2.77,
    "speaker_bm25": -0.26,
    "speaker": 2.64,
    "coverage": 1.5,
    "rarest": 1.87,
    "matched_share": 1.44,
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
