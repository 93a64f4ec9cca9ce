"""The precision of triggers: the share of surfaced memories that were useful, by kind of trigger
(the part before the colon).

Two readers judged the memories that `upwell replay` showed for real sessions
(`benchmarks/RESULTS.md`). The figures combine both readers' verdicts.
"""

from collections.abc import Mapping

USUAL = 0.6
"""The precision assumed for kinds that were not measured."""
PRECISIONS: Mapping[str, float] = {
    "fails": 0.61,
    "file": 0.73,
    "below": 0.73,
    "symbol": 0.84,
    "ticket": 0.8,
}


def precision_of(trigger: str) -> float:
    """Return the precision of this kind of trigger, in 0..1."""
    return PRECISIONS.get(trigger.partition(":")[0], USUAL)
