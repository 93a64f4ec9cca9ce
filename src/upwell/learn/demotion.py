"""Which memories have been rated down so often that they are not offered unasked any more.

Each surfacing of a memory that was rated `not_relevant` or `already_known` is one negative; a
later `helpful` takes one back. Being ignored counts weakly, and never as more than one negative.
"""

from collections.abc import Iterable

from upwell.ground.types import Rating
from upwell.learn.thresholds import Sample, Use

NEGATIVE = frozenset({Rating.NOT_RELEVANT, Rating.ALREADY_KNOWN})
IGNORED_WEIGHT = 0.25
MOST_IGNORED = 1.0
"""Four surfacings that were ignored weigh as much as one rating, and more of them no more."""


def negatives(samples: Iterable[Sample]) -> float:
    """What stands against a memory, from its samples: one verdict for each surfacing."""
    against = ignored = 0.0
    for sample in sorted(samples, key=lambda sample: sample.at):
        if sample.verdict in NEGATIVE:
            against += 1.0
        elif sample.verdict is Rating.HELPFUL:
            against = max(0.0, against - 1.0)
        elif sample.verdict is Use.IGNORED:
            ignored = min(MOST_IGNORED, ignored + IGNORED_WEIGHT)
        elif sample.verdict is Use.USED:
            ignored = 0.0
    return against + ignored
