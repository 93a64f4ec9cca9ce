"""The score that a memory needs to surface for one tool: `min_score`, adjusted to how useful
earlier memories were for that tool.

The score of a memory is a calibrated probability `p` that it is relevant. Feedback shows whether
`p` is too high or too low for this tool. An intercept `b` on the log-odds is fitted to the
feedback, and `min_score` is shifted by `-b`. So a tool whose scores promise too much gets a higher
threshold. The fit is a logistic regression with one coefficient and a Gaussian prior of mean 0 and
variance 1 (maximum a posteriori). Evidence fades with a half-life, so without new evidence every
threshold returns to its configured value.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from upwell.ground.types.surfacing import Rating

MIN_SAMPLES = 10
"""A threshold changes only after this many surfacings with evidence."""
LOWEST_SHIFT, HIGHEST_SHIFT = -0.5, 1.0
"""The bounds of a shift, in log-odds. They keep a threshold of 0.50 between 0.38 and 0.73. The
lower bound is closer to 0, because there is no feedback on memories that a lower threshold would
have shown."""
MIN_SCORE, MAX_SCORE = 0.05, 0.95
STEP = 0.2
"""The largest move in one step, in log-odds: about 0.05 for a threshold of 0.50."""
IMPLICIT_SHIFT = 0.3
"""Observed use changes the shift that follows from ratings by at most this much, in log-odds."""
HALF_LIFE_SECONDS = 30 * 86_400.0
MAX_SAMPLES = 300
"""Only this many of the latest ratings count, and as many of the latest observations. Older ones
have faded."""
_PRIOR_PRECISION = 1.0
_NEUTRAL_PRECISION = 0.25


class MemoryUse(StrEnum):
    """The observed use of a memory by an agent."""

    USED = "used"
    IGNORED = "ignored"


Evidence = Rating | MemoryUse

_WEIGHTS: Mapping[Evidence, tuple[float, float]] = {
    Rating.HELPFUL: (1.0, 1.0),
    Rating.NOT_RELEVANT: (0.0, 1.0),
    Rating.ALREADY_KNOWN: (0.0, 0.5),
    MemoryUse.USED: (1.0, 0.25),
    MemoryUse.IGNORED: (0.0, 0.02),
}
"""Maps each kind of evidence to a relevance and a weight. An already known memory was relevant and
still a nuisance, so it counts half. Even a helpful memory usually leaves no trace in the next
calls, so an ignored memory weighs a twelfth as much as a used one: the two balance if about one
memory in thirteen is used. `partially_helpful` is neutral: it pulls the threshold towards its
configured value."""


class ScoreSample(Struct, frozen=True, kw_only=True):
    """The evidence about one surfaced memory, and the score that it had."""

    surfacing: str
    memory: str
    evidence: Evidence
    score: float
    at: float


class Threshold(Struct, frozen=True, kw_only=True):
    """One tool's threshold: the `min_score` in use, the one that the evidence suggests
    (`suggested`), the number of surfacings with evidence (`samples`), and the number of samples of
    each kind (`evidence`)."""

    tool: str
    min_score: float
    suggested: float
    samples: int
    evidence: Mapping[str, int]

    @property
    def why(self) -> str:
        """The evidence and its tendency, in words."""
        counted = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.evidence.items())
        if self.samples < MIN_SAMPLES:
            return f"{counted or 'no ratings'}; tuning needs {MIN_SAMPLES} surfacings"
        moved = round(self.suggested, 2) - round(self.min_score, 2)
        trend = "rising" if moved > 0 else "falling" if moved < 0 else "steady"
        return f"{counted}; {trend}"


def shifted(base: float, shift: float) -> float:
    """`base` moved by `shift` log-odds, within bounds. 0 (always) and 1 (never) do not move."""
    if not 0.0 < base < 1.0:
        return base
    moved = _sigmoid(_logit(base) + min(HIGHEST_SHIFT, max(LOWEST_SHIFT, shift)))
    return min(max(MAX_SCORE, base), max(min(MIN_SCORE, base), moved))


def target_shift(samples: Sequence[ScoreSample], now: float) -> float:
    """The shift that fits the evidence. 0 while there are too few surfacings."""
    if count(samples) < MIN_SAMPLES:
        return 0.0
    rated = _latest(sample for sample in samples if isinstance(sample.evidence, Rating))
    observed = _latest(sample for sample in samples if isinstance(sample.evidence, MemoryUse))
    explicit_shift = _within(-_intercept(rated, now))
    shift = _within(-_intercept([*rated, *observed], now))
    return min(explicit_shift + IMPLICIT_SHIFT, max(explicit_shift - IMPLICIT_SHIFT, shift))


def stepped(shift: float, target: float) -> float:
    """`shift` moved towards `target`, by at most one step."""
    return shift + min(STEP, max(-STEP, target - shift))


def count(samples: Iterable[ScoreSample]) -> int:
    """The number of surfacings with evidence."""
    return len({sample.surfacing for sample in samples})


def counted(samples: Iterable[ScoreSample]) -> dict[str, int]:
    """The number of samples for each kind of evidence, keyed by its name."""
    numbers = Counter(str(sample.evidence) for sample in samples)
    order = [str(kind) for kind in (*Rating, *MemoryUse)]
    return {name: numbers[name] for name in order if numbers[name]}


def _latest(samples: Iterable[ScoreSample]) -> list[ScoreSample]:
    return sorted(samples, key=lambda sample: sample.at)[-MAX_SAMPLES:]


def _intercept(samples: Sequence[ScoreSample], now: float) -> float:
    """The intercept that maximises the penalised likelihood. The slope of the likelihood decreases
    monotonically, so bisection finds where it is 0."""
    together = Counter(sample.surfacing for sample in samples)
    precision = _PRIOR_PRECISION
    weighed: list[tuple[float, float, float]] = []
    for sample in samples:
        age = max(0.0, now - sample.at)
        share = 0.5 ** (age / HALF_LIFE_SECONDS) / together[sample.surfacing]
        if sample.evidence not in _WEIGHTS:
            precision += _NEUTRAL_PRECISION * share
            continue
        relevant, weight = _WEIGHTS[sample.evidence]
        weighed.append((_logit(min(0.99, max(0.01, sample.score))), relevant, weight * share))
    low, high = -10.0, 10.0
    for _ in range(24):
        b = (low + high) / 2
        slope = sum(w * (y - _sigmoid(z + b)) for z, y, w in weighed) - precision * b
        low, high = (b, high) if slope > 0 else (low, b)
    return (low + high) / 2


def _within(shift: float) -> float:
    return min(HIGHEST_SHIFT, max(LOWEST_SHIFT, shift))


def _logit(p: float) -> float:
    return math.log(p / (1.0 - p))


def _sigmoid(x: float) -> float:
    return 0.5 * (1.0 + math.tanh(x / 2.0))
