"""What happened how often, by UTC day and place, such as the decision `repeated` on 2026-04-09
about calls of `fs__read`.

Decisions and shortened results are counted from their rows. Everything else is counted in memory
and stored in batches. The `door` says what upwell reacted to: a prompt, a tool call, the start of a
session or an explicit question.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import TtlStore
from upwell.usage.events import Event, Events

_DAY_SECONDS = 86_400.0
_SESSION_DIGEST_CHARS = 12
_MAX_NAME_CHARS = 300


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
    READ_AGAIN = "read_again"
    """Tokens of originals that an agent read after it had received the shortened result."""
    TOOL_TOKENS = "tool_tokens"
    """Tokens of the descriptions of upwell's own tools, once for each session that listed them."""


class Count(Struct, frozen=True):
    """How many times an event happened on one day in one place. Unknown parts of the place are
    ""."""

    day: str
    event: CountedEvent
    door: str
    tool: str
    kind: str
    number: int
    host: str = ""
    project: str = ""


class Counts:
    """The stored counters, and those of this process that are not stored yet. Decisions and
    shortened results are not counted here: they are counted from their rows."""

    def __init__(self, ttl_store: TtlStore, clock: Clock = SYSTEM_CLOCK) -> None:
        self._events = Events(ttl_store, clock)
        self._clock = clock
        self._pending: Counter[tuple[str, ...]] = Counter()

    def add(
        self,
        event: CountedEvent,
        kind: str = "",
        *,
        door: str = "",
        tool: str = "",
        host: str = "",
        project: str = "",
        by: int = 1,
    ) -> None:
        """Count an event."""
        self._pending[event, *map(_plain, (host, project, door, tool, kind))] += by

    async def flush(self) -> None:
        """Store the pending counts under the current day. If the store fails, they are lost."""
        pending, self._pending = self._pending, Counter()
        if not pending:
            return
        now = self._clock.now()
        day = _day(now)
        figures = [
            Event(
                id="\t".join((day, event, host, project, "", door, tool, kind)),
                kind=event,
                at=now,
                host=host,
                project=project,
                door=door,
                tool=tool,
                outcome=kind,
                times=number,
            )
            for (event, host, project, door, tool, kind), number in pending.items()
        ]
        try:
            await self._events.add(figures)
        except StoreError as error:
            LOG.warning("counts were not stored: %s", error)

    async def since(self, days: int) -> list[Count]:
        """Return all counts from the last `days` days, including today.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        today = self._clock.now() // _DAY_SECONDS * _DAY_SECONDS
        first = today - (days - 1) * _DAY_SECONDS
        counts = [count for row in await self._events.figures(first) for count in _counts_of(row)]
        sessions = await self._events.sessions(first)
        return counts + [
            Count(_day(first), CountedEvent.SESSION, "", "", _digest_of(session), 1)
            for session in sessions
        ]


def _counts_of(row: Sequence[Any]) -> Iterator[Count]:
    """The counts in one row of `Events.figures()`."""
    day, event, host, project, door, tool, kind, *figures = row
    times, memories, tokens, before, after, late = figures
    found = [(event, kind, times), ("said", "memories", memories), ("said", "tokens", tokens)]
    if event == CountedEvent.COMPRESSED:
        found = [(event, "results", times), (event, "tokens_before", before)]
        found.append((event, "tokens_saved", before - after))
    if late:
        found.append(("late", "missed", late))
    for name, detail, number in found:
        if number:
            yield Count(day, CountedEvent(name), door, _plain(tool), detail, number, host, project)


@lru_cache(maxsize=64)
def _digest_of(session: str) -> str:
    digest = hashlib.sha256(session.encode(errors="replace")).hexdigest()
    return digest[:_SESSION_DIGEST_CHARS]


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat()


@lru_cache(maxsize=1_000)
def _plain(name: str) -> str:
    return " ".join(name.split())[:_MAX_NAME_CHARS]
