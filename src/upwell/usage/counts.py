"""Small durable counters: one increment in memory for each event, written in batches.

A counter has a day (UTC), an `event`, a `door`, a `tool` and a `kind`:
("2026-04-09", "decision", "tool", "fs__read", "repeated").
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Kind, TtlStore

RETENTION_DAYS = 90
_SEPARATOR = "\t"


class Event(StrEnum):
    """The events that are counted."""

    DECISION = "decision"
    """`kind` is `surfaced` or the reason for silence."""
    SAID = "said"
    """`kind` is `memories` that were surfaced, or their `tokens`."""
    SESSION = "session"
    """A decision in a session; `kind` is a digest of the session's name."""
    LATE = "late"
    """Surfacings that did not reach the agent; `kind` is `missed` (the race), `no_reply` (the call
    failed), or `offered`: missed, and delivered at the next call."""
    MISSING = "missing"
    """A search in which one place gave no answer; `kind` is the name of the place."""
    USE = "use"
    """`kind` is `used` or `ignored`."""
    RATING = "rating"
    JUDGE = "judge"
    """`kind` is `asked`, then `chosen`, `nothing`, `failed` or `unusable`; `cached`, `capped`,
    `late`; or `tokens_in`, `tokens_out` and `millionths` of the currency, counted one by one.
    """
    INTENT = "intent"
    """A prompt that the model of `intent.use_llm` was asked about; `kind` is `answered`, `timeout`,
    `failed` or `unusable`."""
    COMPRESSED = "compressed"
    """`kind` is `results`, `tokens_before` or `tokens_saved`."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of times that an event happened on one day."""

    day: str
    event: Event
    door: str
    tool: str
    kind: str
    number: int


class Counts:
    """The counters of this process, and the stored ones."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ttl_store = ttl_store
        self._clock = clock
        self._pending: Counter[tuple[str, ...]] = Counter()

    def add(self, event: Event, kind: str, *, door: str = "", tool: str = "", by: int = 1) -> None:
        """Count an event; `flush` writes it."""
        self._pending[(event, _plain(door), _plain(tool), kind)] += by

    async def flush(self) -> None:
        """Write pending counts; a store that fails costs only these counts."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        today = _day(self._clock.now())
        numbers = {_SEPARATOR.join((today, *name)): number for name, number in pending.items()}
        try:
            await self._ttl_store.incr(Kind.COUNT, numbers, ttl_seconds=RETENTION_DAYS * 86_400.0)
        except StoreError as error:
            LOG.warning("counts were not stored: %s", error)

    async def since(self, days: int) -> list[Count]:
        """All counts of the last `days` days, including today.

        Raises:
            StoreError: the store cannot be read.
        """
        first = _day(self._clock.now() - (days - 1) * timedelta(days=1).total_seconds())
        counts: list[Count] = []
        for item in await self._ttl_store.scan(Kind.COUNT):
            day, event, door, tool, kind = item.key.split(_SEPARATOR)
            if day >= first:
                counts.append(Count(day, Event(event), door, tool, kind, item.number))
        return counts


@lru_cache(maxsize=1_000)
def _plain(name: str) -> str:
    """A name without separators, cut at 200 characters."""
    return " ".join(name.split())[:200].encode(errors="replace").decode()


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()
