"""Computes the share of useful memories and a suitable threshold from a person's answers about a
sample.
"""

import random
from collections.abc import Sequence
from math import sqrt

from msgspec import Struct

from upwell.ground.types.memory import Hit
from upwell.replay.run import ReplayDecision

Z = 1.96
"""The 97.5 % quantile of the normal distribution, for a 95 % interval."""
MIN_LABELS = 20
"""The minimum number of answers for fitting a threshold. Fewer would fit it to chance."""


class SampledHit(Struct, frozen=True):
    """A memory that surfaced, and the decision to show it."""

    decision: ReplayDecision
    hit: Hit


class Label(Struct, frozen=True):
    """A person's answer about a memory with this score. `useful` is None for "unsure"."""

    score: float
    useful: bool | None


class Share(Struct, frozen=True):
    """The number of useful memories among the answers. The true share lies between `low` and `high`
    with 95 % confidence."""

    useful: int
    answers: int
    low: float
    high: float


class Fit(Struct, frozen=True):
    """A threshold, and how many of the labelled memories pass it: useful ones and others."""

    min_score: float
    useful: int
    others: int


class ReplaySample:
    """Draws `size` memories from a replay, all with the same probability (reservoir sampling,
    Vitter 1985, algorithm R). The same replay always gives the same sample."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._random = random.Random(size)
        self._offered = 0
        self._drawn: list[SampledHit] = []

    def offer(self, decision: ReplayDecision) -> None:
        """Let the sample draw from the memories in a decision."""
        for hit in decision.hits:
            self._offered += 1
            if len(self._drawn) < self._size:
                self._drawn.append(SampledHit(decision, hit))
            elif (index := self._random.randrange(self._offered)) < self._size:
                self._drawn[index] = SampledHit(decision, hit)

    def sampled_hits(self) -> Sequence[SampledHit]:
        """The sample in chronological order."""
        return sorted(
            self._drawn, key=lambda sampled_hit: (sampled_hit.decision.t, sampled_hit.decision.i)
        )


def share_of(labels: Sequence[Label]) -> Share:
    """The share of useful memories among the definite answers, with its 95 % interval (Wilson
    1927)."""
    answers = [label for label in labels if label.useful is not None]
    useful, total = sum(bool(label.useful) for label in answers), len(answers)
    if not total:
        return Share(0, 0, 0.0, 1.0)
    share = useful / total
    middle = share + Z * Z / (2 * total)
    reach = Z * sqrt(share * (1 - share) / total + Z * Z / (4 * total * total))
    below = 1 + Z * Z / total
    return Share(
        useful, total, max(0.0, (middle - reach) / below), min(1.0, (middle + reach) / below)
    )


def fitted(labels: Sequence[Label]) -> Fit | None:
    """The `surface.min_score` at which useful memories outnumber the others by the widest margin.
    None if they never do, or if there are fewer than `MIN_LABELS` answers. The result is rarely
    below the current threshold, because nobody has judged the memories that did not surface."""
    answers = [label for label in labels if label.useful is not None]
    if len(answers) < MIN_LABELS:
        return None
    best: Fit | None = None
    for score in sorted({label.score for label in answers}):
        passing = [label for label in answers if label.score >= score]
        useful = sum(bool(label.useful) for label in passing)
        fit = Fit(int(score * 1000) / 1000, useful, len(passing) - useful)
        if fit.useful > fit.others and (best is None or _gain(fit) > _gain(best)):
            best = fit
    return best


def _gain(fit: Fit) -> int:
    return fit.useful - fit.others
