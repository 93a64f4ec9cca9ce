"""How sure surfacing must be beside one tool: `min_score`, moved by what became of its surfacings.

The score of a memory is a calibrated probability `p` that it is relevant. Feedback says how often
that was right for this tool. An intercept `b` on the log-odds is fitted to it (logistic regression
with one coefficient and a Gaussian prior of mean 0 and variance 1, the maximum a posteriori), and
`min_score` shifted by `-b`: a tool where scores promise too much needs higher ones. Old evidence
fades with a half-life, so that without news every threshold returns to where it was configured.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from upwell.ground.types import Rating

MIN_SAMPLES = 10
"""Surfacings with evidence below which nothing is changed."""
LOWEST_SHIFT, HIGHEST_SHIFT = -0.5, 1.0
"""Log-odds: 0.50 stays within 0.38 and 0.73. Less room below, where nobody was asked: memories
that were never said were never rated."""
LEAST_SCORE, MOST_SCORE = 0.05, 0.95
STEP = 0.2
"""The most that one tuning moves, in log-odds: 0.05 around 0.50."""
IMPLICIT_SHIFT = 0.3
"""The most that evidence which nobody gave on purpose adds to what was said, in log-odds."""
HALF_LIFE_SECONDS = 30 * 86_400.0
MOST_SAMPLES = 300
"""The latest of each sort that are looked at: what came before has faded."""
_PRIOR_PRECISION = 1.0
_NEUTRAL_PRECISION = 0.25


class Use(StrEnum):
    """What an agent did with a memory without being asked about it."""

    USED = "used"
    IGNORED = "ignored"


Verdict = Rating | Use

_EVIDENCE: Mapping[Verdict, tuple[float, float]] = {
    Rating.HELPFUL: (1.0, 1.0),
    Rating.NOT_RELEVANT: (0.0, 1.0),
    Rating.ALREADY_KNOWN: (0.0, 0.5),
    Use.USED: (1.0, 0.25),
    Use.IGNORED: (0.0, 0.02),
}
"""Verdict → was it relevant, and the weight of saying so. What was known already was relevant and
still a nuisance: half. Most memories that help leave no trace in the next calls: where one in five
of those that were said is used, what is ignored and what is used weigh the same together.
`partially_helpful` is neutral: it holds the threshold where it was configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What became of one surfaced memory, whose score was `score`."""

    surfacing: str
    memory: str
    verdict: Verdict
    score: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One tool's threshold: `min_score` in use, what the evidence suggests, from how many
    surfacings, and what they were."""

    tool: str
    min_score: float
    suggested: float
    samples: int
    verdicts: Mapping[str, int]

    @property
    def why(self) -> str:
        """In words."""
        counted = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in self.verdicts.items())
        if self.samples < MIN_SAMPLES:
            return f"{counted or 'nothing rated'}; {MIN_SAMPLES} surfacings are needed"
        moved = round(self.suggested, 2) - round(self.min_score, 2)
        trend = "asks for more" if moved > 0 else "asks for less" if moved < 0 else "holds"
        return f"{counted}; {trend}"


def shifted(base: float, shift: float) -> float:
    """`base` moved by `shift` log-odds, within bounds. 0 and 1 mean always and never: they stay."""
    if not 0.0 < base < 1.0:
        return base
    moved = _sigmoid(_logit(base) + min(HIGHEST_SHIFT, max(LOWEST_SHIFT, shift)))
    return min(max(MOST_SCORE, base), max(min(LEAST_SCORE, base), moved))


def wanted_shift(samples: Sequence[Sample], now: float) -> float:
    """The shift that the evidence asks for; 0 while there are too few surfacings."""
    if count(samples) < MIN_SAMPLES:
        return 0.0
    rated = _latest(sample for sample in samples if isinstance(sample.verdict, Rating))
    seen = _latest(sample for sample in samples if isinstance(sample.verdict, Use))
    said = _within(-_intercept(rated, now))
    everything = _within(-_intercept([*rated, *seen], now))
    return min(said + IMPLICIT_SHIFT, max(said - IMPLICIT_SHIFT, everything))


def stepped(shift: float, wanted: float) -> float:
    """`shift` brought nearer to `wanted`, by one step at most."""
    return shift + min(STEP, max(-STEP, wanted - shift))


def count(samples: Iterable[Sample]) -> int:
    """How many surfacings there is evidence about."""
    return len({sample.surfacing for sample in samples})


def counted(samples: Iterable[Sample]) -> dict[str, int]:
    """How often each verdict was given."""
    found = Counter(str(sample.verdict) for sample in samples)
    order = [str(verdict) for verdict in (*Rating, *Use)]
    return {name: found[name] for name in order if found[name]}


def _latest(samples: Iterable[Sample]) -> list[Sample]:
    return sorted(samples, key=lambda sample: sample.at)[-MOST_SAMPLES:]


def _intercept(samples: Sequence[Sample], now: float) -> float:
    """Where the penalised likelihood is greatest, by bisection of its slope, which only falls."""
    together = Counter(sample.surfacing for sample in samples)
    precision = _PRIOR_PRECISION
    weighed: list[tuple[float, float, float]] = []
    for sample in samples:
        age = max(0.0, now - sample.at)
        share = 0.5 ** (age / HALF_LIFE_SECONDS) / together[sample.surfacing]
        if sample.verdict not in _EVIDENCE:
            precision += _NEUTRAL_PRECISION * share
            continue
        relevant, weight = _EVIDENCE[sample.verdict]
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
