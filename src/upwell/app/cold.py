"""Decisions that hooks made while no daemon ran, told and counted like all others."""

from collections.abc import Mapping
from pathlib import Path

from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.types import Door, SkipReason
from upwell.hook.spool import taken
from upwell.surface.journal import Journal
from upwell.surface.lessons import Lessons

OUTCOMES = {"surfaced", *map(str, SkipReason)}


async def take_up(home: Path, journal: Journal, lessons: Lessons) -> int:
    """Bring what waits to the journal and the counts. Gives how many decisions it was."""
    found = {str(one["id"]): one for one in taken(str(home)) if _is_decision(one)}
    if not found:
        return 0
    try:
        await journal.adopt(found)
    except StoreError as error:
        LOG.warning("what hooks decided without a daemon is not known: %s", error)
        return 0
    for one in found.values():
        memories = one.get("memories")
        lessons.decided(
            str(one["outcome"]),
            door=str(one["door"]),
            tool=str(one.get("tool") or ""),
            memories=len(memories) if isinstance(memories, list) else 0,
        )
    await lessons.counts.flush()
    return len(found)


def _is_decision(one: Mapping[str, object]) -> bool:
    """The file is this user's, but may be cut off or of another version."""
    known = one.get("outcome") in OUTCOMES and one.get("door") in set(map(str, Door))
    return known and isinstance(one.get("id"), str) and isinstance(one.get("at"), int | float)
