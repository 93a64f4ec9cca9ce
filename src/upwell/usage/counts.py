"""Durable counters of events, incremented in memory and stored in batches.

The key of a counter consists of a UTC day, an `event`, a `door`, a `tool` and a `kind`, such as
("2026-04-09", "decision", "tool", "fs__read", "repeated"). The `door` says what upwell reacted to:
a prompt, a tool call, the start of a session or an explicit question.
"""

from enum import StrEnum

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.ttl_store import EntryKind, TtlStore
from upwell.usage.daily import DailyNumbers


class CountedEvent(StrEnum):
    """The events that are counted."""

    DECISION = "decision"
    """`kind` is `surfaced`, or the reason why no memory was surfaced."""
    SAID = "said"
    """Surfaced memories. `kind` is `memories` (their number) or `tokens` (of their texts)."""
    SESSION = "session"
    """A decision in a session. `kind` is a digest of the session's name."""
    LATE = "late"
    """A decision whose memories did not reach the agent with the call that led to it. `kind` is
    `missed` (not ready when the call returned), `no_reply` (the call failed, or its reply was not
    delivered), or `offered` (offered again with a later call).
    """
    MISSING = "missing"
    """A search in which a store of memories failed. `kind` is the name of the store."""
    USE = "use"
    """Whether the agent used a surfaced memory. `kind` is `used` or `ignored`."""
    RATING = "rating"
    JUDGE = "judge"
    """The judge, a model that may choose the memories. Each question counts as `asked`, and its
    outcome as `chosen`, `nothing`, `failed` or `unusable`. `cached` and `capped` count events for
    which the model was not asked, and `late` counts choices that were kept for a later event.
    `tokens_in`, `tokens_out` and `millionths` (of the currency) are the cost."""
    LESSON = "lesson"
    """The model that writes lessons. `kind` is `asked`, `failed`, `kept`, `replaced`, `taken_back`,
    `confirmed`, `dropped_…` (a lesson that did not pass, with the reason), or the cost as for the
    judge."""
    INTENT = "intent"
    """A question to the language model about a prompt (`intent.use_llm`). `kind` is `answered`,
    `timeout`, `failed` or `unusable`."""
    COMPRESSED = "compressed"
    """`kind` is `results`, `tokens_before` or `tokens_saved`."""


class Count(Struct, frozen=True):
    """How many times an event happened on one day."""

    day: str
    event: CountedEvent
    door: str
    tool: str
    kind: str
    number: int


class Counts:
    """The stored counters, and those of this process that are not stored yet."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._numbers = DailyNumbers(ttl_store, EntryKind.COUNT, clock, max_name_chars=200)

    def add(
        self, event: CountedEvent, kind: str, *, door: str = "", tool: str = "", by: int = 1
    ) -> None:
        """Count an event."""
        self._numbers.add(event, door, tool, kind, by=by)

    async def flush(self) -> None:
        """Store the pending counts. If the store fails, they are lost."""
        await self._numbers.flush()

    async def since(self, days: int) -> list[Count]:
        """Return all counts from the last `days` days, including today.

        Raises:
            StoreError: the store cannot be read.
        """
        return [
            Count(day, CountedEvent(event), door, tool, kind, number)
            for day, (event, door, tool, kind), number in await self._numbers.since(days)
        ]
