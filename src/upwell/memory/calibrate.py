"""From raw signals to the probability that a memory is relevant: a small logistic regression.

Coefficients are fitted by `benchmarks/calibrate.py` on coding work and conversations with
negatives of the same style (Platt 1999 for the idea, `docs/decisions.md` for the figures).
"""

import math
from collections.abc import Mapping

COEFFICIENTS: Mapping[str, float] = {}
INTERCEPT = -3.0


def features(signals: Mapping[str, float]) -> dict[str, float]:
    """The signals on scales on which a straight line fits."""
    get = signals.get
    path = get("path_join", 0.0) * get("path_rarity", 0.0)
    return {
        "bm25": math.log1p(get("bm25", 0.0)),
        "per_term": get("bm25_per_term", 0.0),
        "margin": math.log1p(max(0.0, get("margin", 0.0))),
        "coverage": get("idf_coverage", 0.0),
        "mass": math.log1p(get("coverage_mass", 0.0)),
        "vocabulary": get("in_vocabulary", 0.0),
        "words": math.log1p(get("informative_words", 0.0)),
        "window": math.log1p(get("window", 0.0)),
        "path": path,
        "path_full": float(get("path_join", 0.0) >= 0.8),
        "path_named": get("path_named", 0.0) * path,
        "path_focus": get("path_focus", 0.0) * path,
        "symbol": get("symbol_join", 0.0) * get("symbol_rarity", 0.0),
    }


def probability(signals: Mapping[str, float]) -> float:
    """How probable it is, in 0..1, that a memory with these signals is relevant."""
    values = features(signals)
    logit = INTERCEPT + sum(COEFFICIENTS.get(name, 0.0) * value for name, value in values.items())
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))
