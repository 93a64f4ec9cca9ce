"""From a rating to what it is about: the surfacing, as the journal knows it."""

from collections.abc import Mapping
from typing import Any

from upwell.ground.errors import UsageError
from upwell.ground.types import Feedback
from upwell.learn.feedback import Rated


def rated(feedback: Feedback, decision: Mapping[str, Any] | None, now: float) -> list[Rated]:
    """What `feedback` says of each memory of the surfacing, or of the one it names. Standing rules
    were not chosen, so a rating of the whole says nothing of them.

    Raises:
        UsageError: no such surfacing, or no such memory in it.
    """
    surfacing = feedback.surfacing_id
    if decision is None or decision["outcome"] != "surfaced":
        raise UsageError(
            f"no surfacing {surfacing!r}",
            hint="its id stands in the block of memories and in _meta, and is kept for 90 days",
        )
    scores = {memory: float(score) for memory, score in decision["memories"]}
    evidence = decision["evidence"]
    chosen = [memory for memory in scores if "pinned" not in evidence.get(memory, {})]
    wanted = feedback.memory_id
    if wanted is not None and wanted not in chosen:
        known = ", ".join(chosen) or "none that can be rated"
        rule = " (a standing rule)" if wanted in scores else ""
        raise UsageError(
            f"memory {wanted!r}{rule} was not chosen in surfacing {surfacing}",
            hint=f"those in it: {known}",
        )
    return [
        Rated(
            surfacing=surfacing,
            memory=memory,
            rating=feedback.rating,
            at=now if feedback.at is None else feedback.at,
            door=decision["door"],
            tool=decision["tool"] or decision["door"],
            score=scores[memory],
            signals=evidence.get(memory, {}),
        )
        for memory in (chosen if wanted is None else [wanted])
    ]
