"""What was decided and why: kept for `explain` and for feedback, off the hot path.

Query texts stand apart from decisions, with secrets masked, and only for `query_retention_days`;
or as digests when `persist_query_text` is off (seed 000).
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from upwell.ground.errors import StoreError
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.shelf import Item, Shelf
from upwell.ground.trace import LOG
from upwell.ground.types import Cue, Hit, Skip, Surfacing
from upwell.surface.options import SurfaceOptions

DECISIONS = "decision"
QUERIES = "query"
KEPT_DAYS = 90
DIGEST = "sha256:"
_DAY_SECONDS = 86_400.0
_MOST_HELD_BACK = 5


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision that is not written yet. `late`: it missed the race."""

    cue: Cue
    outcome: Surfacing | Skip
    took_ms: float
    late: bool = False


class Journal:
    """Decisions on their way to the shelf, and those on it. `mask` takes secrets out of a text."""

    def __init__(
        self,
        shelf: Shelf,
        options: SurfaceOptions,
        mask: Callable[[str], str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._shelf = shelf
        self._options = options
        self._mask = mask
        self._clock = clock
        self._pending: dict[str, _Decision] = {}
        self._writing = asyncio.Lock()

    def note(self, cue: Cue, outcome: Surfacing | Skip, key: str, took_ms: float) -> None:
        """Write a decision down, soon."""
        self._pending[key] = _Decision(cue, outcome, took_ms)

    def late(self, key: str) -> None:
        """This decision came too late for its call. Said in time for the next flush, as it is."""
        if key in self._pending:
            self._pending[key] = replace(self._pending[key], late=True)

    async def flush(self) -> None:
        """Bring what is pending to the shelf, and wait for what is on its way there. A shelf that
        fails costs the journal, no more."""
        async with self._writing:
            pending, self._pending = self._pending, {}
            if pending:
                await self._write(pending)

    async def find(self, key: str) -> dict[str, Any] | None:
        """The decision of this surfacing, as it was written; None when it is not known (any more).

        Raises:
            StoreError: the shelf cannot be read.
        """
        await self.flush()
        item = (await self._shelf.get(DECISIONS, [key])).get(key)
        return _read(item) if item else None

    async def adopt(self, decisions: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep decisions that were made elsewhere, by id, as they were written there.

        Raises:
            StoreError: they were not kept.
        """
        written = {
            key: orjson.dumps({**one, "session": self._mask(str(one.get("session", ""))[:200])})
            for key, one in decisions.items()
        }
        await self._shelf.put(DECISIONS, written, ttl_seconds=KEPT_DAYS * _DAY_SECONDS)

    async def recent(self) -> list[dict[str, Any]]:
        """Every decision that is kept, with its queries where these are; oldest first.

        Raises:
            StoreError: the shelf cannot be read.
        """
        await self.flush()
        texts = await self._shelf.scan(QUERIES)
        queries = {item.key: {"queries": orjson.loads(item.value)} for item in texts}
        decisions = await self._shelf.scan(DECISIONS)
        found = [_read(item) | queries.get(item.key, {}) for item in decisions]
        return sorted(found, key=lambda decision: decision["at"])

    async def clear_queries(self) -> int:
        """Remove query texts that are older than they may be by now, and every text that is there
        in the clear when none may be. Gives how many it was.

        Raises:
            StoreError: the shelf failed.
        """
        horizon = self._clock.now() - self._retention_seconds()
        gone = 0
        for item in await self._shelf.scan(QUERIES):
            clear = any(not text.startswith(DIGEST) for text in orjson.loads(item.value))
            forbidden = clear and not self._options.persist_query_text
            if item.created_at <= horizon or forbidden:
                gone += await self._shelf.drop(QUERIES, item.key)
        return gone

    async def _write(self, pending: Mapping[str, _Decision]) -> None:
        entries, queries = await asyncio.to_thread(self._written, pending)
        try:
            await self._shelf.put(DECISIONS, entries, ttl_seconds=KEPT_DAYS * _DAY_SECONDS)
            if self._options.query_retention_days > 0 and queries:
                await self._shelf.put(QUERIES, queries, ttl_seconds=self._retention_seconds())
        except StoreError as error:
            LOG.warning("decisions were not kept: %s", error)

    def _retention_seconds(self) -> float:
        return self._options.query_retention_days * _DAY_SECONDS

    def _written(
        self, pending: Mapping[str, _Decision]
    ) -> tuple[dict[str, bytes], dict[str, bytes]]:
        entries = {key: orjson.dumps(self._described(key, one)) for key, one in pending.items()}
        queries = {
            key: orjson.dumps([self._kept(text) for text in one.outcome.queries])
            for key, one in pending.items()
            if one.outcome.queries
        }
        return entries, queries

    def _described(self, key: str, decision: _Decision) -> dict[str, Any]:
        cue, outcome = decision.cue, decision.outcome
        silent = outcome if isinstance(outcome, Skip) else None
        said = outcome.hits if isinstance(outcome, Surfacing) else ()
        return {
            "id": key,
            "at": cue.at,
            "door": str(cue.door),
            "tool": cue.tool,
            "session": self._mask(cue.session[:200]),
            "trace_id": self._mask(cue.trace_id[:64]),
            "outcome": str(silent.reason) if silent else "surfaced",
            "detail": silent.detail if silent else "",
            "late": decision.late,
            "confidence": round(outcome.confidence, 4),
            "signals": dict(outcome.signals),
            "intent": [str(outcome.intent.kind), outcome.intent.confidence, outcome.intent.source],
            "memories": [_scored(hit) for hit in said],
            "evidence": {hit.memory.id: dict(hit.signals) for hit in said},
            "held_back": [_scored(hit) for hit in outcome.held_back[:_MOST_HELD_BACK]],
            "took_ms": round(decision.took_ms, 2),
        }

    def _kept(self, text: str) -> str:
        if self._options.persist_query_text:
            return self._mask(text).encode(errors="replace").decode()
        return DIGEST + hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _read(item: Item) -> dict[str, Any]:
    """A decision, whoever wrote it: a cold hook and earlier versions say less."""
    found: dict[str, Any] = orjson.loads(item.value)
    return {"id": item.key, "late": False, "queries": [], "evidence": {}, **found}


def _scored(hit: Hit) -> list[Any]:
    return [hit.memory.id, round(hit.score, 4)]
