"""Small durable counters: one increment in memory for each event, brought to the shelf in batches.

A counter belongs to a day (UTC), says what happened (`event`), at which `door`, beside which
`tool`, and in which `kind`: ("2026-04-09", "decision", "tool", "fs__read", "repeated").
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG

KIND = "count"
KEPT_DAYS = 90
_BETWEEN = "\t"


class Event(StrEnum):
    """What is counted."""

    DECISION = "decision"
    """`kind` is `surfaced` or the reason for silence."""
    SAID = "said"
    """Memories that were surfaced."""
    LATE = "late"
    """Surfacings that did not reach the agent; `kind` is `missed` (the race), `no_reply` (the call
    failed), or `offered`: missed, and said at the next call."""
    USE = "use"
    """`kind` is `used` or `ignored`."""
    RATING = "rating"
    COMPRESSED = "compressed"
    """`kind` is `results`, `tokens_before` or `tokens_saved`."""


@dataclass(frozen=True, slots=True)
class Count:
    """How often something happened on one day."""

    day: str
    event: Event
    door: str
    tool: str
    kind: str
    number: int


class Counts:
    """The counters of this process, and those on the shelf."""

    def __init__(self, shelf: Shelf, clock: Clock = SYSTEM_CLOCK) -> None:
        self._shelf = shelf
        self._clock = clock
        self._pending: Counter[tuple[str, ...]] = Counter()

    def add(self, event: Event, kind: str, *, door: str = "", tool: str = "", by: int = 1) -> None:
        """Count. Nothing is written yet."""
        self._pending[(event, _plain(door), _plain(tool), kind)] += by

    async def flush(self) -> None:
        """Bring what is pending to the shelf; a shelf that fails costs these counts, no more."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        today = _day(self._clock.now())
        numbers = {_BETWEEN.join((today, *name)): number for name, number in pending.items()}
        try:
            await self._shelf.incr(KIND, numbers, ttl_seconds=KEPT_DAYS * 86_400.0)
        except StoreError as error:
            LOG.warning("counts were not kept: %s", error)

    async def since(self, days: int) -> list[Count]:
        """Everything that was counted in the last `days` days, today included.

        Raises:
            StoreError: the shelf cannot be read.
        """
        first = _day(self._clock.now() - (days - 1) * timedelta(days=1).total_seconds())
        found: list[Count] = []
        for item in await self._shelf.scan(KIND):
            day, event, door, tool, kind = item.key.split(_BETWEEN)
            if day >= first:
                found.append(Count(day, Event(event), door, tool, kind, item.number))
        return found


def _plain(name: str) -> str:
    """A name without what stands between names, and not without end."""
    return " ".join(name.split())[:200].encode(errors="replace").decode()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
