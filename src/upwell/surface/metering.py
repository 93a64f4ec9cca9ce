"""Counts decisions for the metrics of the process, and labels them in spans."""

from upwell.ground.meters import DECISION_SECONDS, DECISIONS, MEMORIES
from upwell.ground.types.cue import Cue
from upwell.ground.types.surfacing import Skip, Surfacing


def count_decision(cue: Cue, outcome: Surfacing | Skip, seconds: float) -> None:
    """Count a decision and the time it took."""
    reason = str(outcome.reason) if isinstance(outcome, Skip) else "surfaced"
    DECISIONS.add(str(cue.door), reason)
    DECISION_SECONDS.observe(seconds, str(cue.door))


def count_delivery(surfacing: Surfacing) -> None:
    """Count the memories that an agent received."""
    MEMORIES.add(by=len(surfacing.hits))


def label(outcome: Surfacing | Skip) -> str:
    """The label of an outcome in a span."""
    if isinstance(outcome, Skip):
        return f"skip {outcome.reason}"
    return f"surfaced {len(outcome.hits)}"
