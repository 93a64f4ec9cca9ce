"""The precision of triggers: the share of useful memories among those said for a met trigger, by
the kind of the trigger, which is the part before its colon. Measured on the output of `upwell
replay` over real sessions (`docs/measurements.md`)."""

from collections.abc import Mapping

USUAL = 0.6
"""For kinds that were not measured."""
PRECISIONS: Mapping[str, float] = {
    "fails": 0.52,
    "file": 0.67,
    "below": 0.67,
    "symbol": 0.91,
    "ticket": 0.84,
}


def precision_of(trigger: str) -> float:
    """The share of memories found by triggers of this kind that are useful, in 0..1."""
    return PRECISIONS.get(trigger.partition(":")[0], USUAL)
