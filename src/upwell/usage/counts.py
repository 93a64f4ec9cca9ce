"""Small durable counters: one increment in memory for each event, written in batches.

A counter has a day (UTC), an `event`, a `door`, a `tool` and a `kind`:
("2026-04-09", "decision", "tool", "fs__read", "repeated").
"""

from dataclasses import dataclass
from enum import StrEnum

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.ttl_store import Kind, TtlStore
from upwell.usage.daily import DailyNumbers


class Event(StrEnum):
    """The events that are counted."""

    DECISION = "decision"
    """`kind` is `surfaced` or the reason for silence."""
    SAID = "said"
    """Surfaced memories; `kind` is `memories` (their number) or `tokens` (of their text)."""
    SESSION = "session"
    """A decision in a session; `kind` is a digest of the session's name."""
    LATE = "late"
    """Surfacings that did not reach the agent with their call; `kind` is `missed` (not ready when
    the call returned), `no_reply` (the call failed), or `offered` (delivered at the next call).
    """
    MISSING = "missing"
    """A search in which a store of memories gave no answer; `kind` is the name of the store."""
    USE = "use"
    """`kind` is `used` or `ignored`."""
    RATING = "rating"
    JUDGE = "judge"
    """Questions to the judge, the model that may choose the memories. `kind` is `asked`, followed
    by `chosen`, `nothing`, `failed` or `unusable`; `cached` or `capped` if the model was not asked;
    `late` if the choice was kept for a later event; and `tokens_in`, `tokens_out` or `millionths`
    (of the currency) for the cost."""
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
        self._numbers = DailyNumbers(ttl_store, Kind.COUNT, clock, max_name_chars=200)

    def add(self, event: Event, kind: str, *, door: str = "", tool: str = "", by: int = 1) -> None:
        """Count an event; `flush` writes it."""
        self._numbers.add(event, door, tool, kind, by=by)

    async def flush(self) -> None:
        """Write the pending counts. If the store fails, only these counts are lost."""
        await self._numbers.flush()

    async def since(self, days: int) -> list[Count]:
        """All counts of the last `days` days, including today.

        Raises:
            StoreError: the store cannot be read.
        """
        return [
            Count(day, Event(event), door, tool, kind, number)
            for day, (event, door, tool, kind), number in await self._numbers.since(days)
        ]
