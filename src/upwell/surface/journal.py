"""The record of decisions, for `explain` and for feedback, written off the hot path.

Query texts are stored apart from decisions, with secrets masked, and only for
`query_retention_days`; or as digests if `persist_query_text` is off.
"""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import orjson

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.secrets.redact import redact, redacted_start
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Entries, Item, Kind, TtlStore
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Hit
from upwell.ground.types.surfacing import Skip, Surfacing
from upwell.surface.options import Options

RETENTION_DAYS = 90
DIGEST = "sha256:"
_OWN_TRACE_ID = re.compile(r"[0-9a-f]{32}")
"""A trace id of ours, or of a client that follows W3C Trace Context, holds no secret."""
_DAY_SECONDS = 86_400.0
_MAX_HELD_BACK = 5
_MAX_INLINE = 3
"""Up to this number, encoding decisions takes less time than a switch to a thread."""


@dataclass(frozen=True, slots=True)
class _Decision:
    """A decision that is not written yet. `late` means that it missed its call."""

    cue: Cue
    outcome: Surfacing | Skip
    took_ms: float
    late: bool = False


class Journal:
    """The decisions on their way to the TTL store, and those in it."""

    def __init__(self, ttl_store: TtlStore, options: Options, clock: Clock = SYSTEM_CLOCK) -> None:
        self._ttl_store = ttl_store
        self._options = options
        self._clock = clock
        self._pending: dict[str, _Decision] = {}
        self._writing = asyncio.Lock()

    def note(
        self,
        cue: Cue,
        outcome: Surfacing | Skip,
        key: str,
        took_ms: float,
        *,
        late: bool = False,
    ) -> None:
        """Queue a decision for the next flush, in place of an earlier one with this key."""
        if cue.at is None:
            earlier = self._pending.get(key)
            cue = earlier.cue if earlier else replace(cue, at=self._clock.now())
        self._pending[key] = _Decision(cue, outcome, took_ms, late)

    async def flush(self) -> None:
        """Write pending decisions, after any write that is under way. A store that fails costs only
        those decisions.
        """
        async with self._writing:
            pending, self._pending = self._pending, {}
            if pending:
                await self._write(pending)

    async def find(self, key: str) -> dict[str, Any] | None:
        """The decision of this surfacing; None if it does not exist or has expired.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        item = (await self._ttl_store.get(Kind.DECISION, [key])).get(key)
        return _decoded(item) if item else None

    async def recent(self) -> list[dict[str, Any]]:
        """All stored decisions, with their queries if those are still stored; oldest first.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.flush()
        texts = await self._ttl_store.scan(Kind.QUERY)
        queries = {item.key: {"queries": orjson.loads(item.value)} for item in texts}
        items = await self._ttl_store.scan(Kind.DECISION)
        decisions = [_decoded(item) | queries.get(item.key, {}) for item in items]
        return sorted(decisions, key=lambda decision: decision["at"])

    async def clear_queries(self) -> int:
        """Remove query texts past the present retention, and readable texts if the present
        configuration allows only digests. Returns the number of removed texts.

        Raises:
            StoreError: the store failed.
        """
        horizon = self._clock.now() - self._retention_seconds()
        items = await self._ttl_store.scan(Kind.QUERY)
        expired = [item.key for item in items if item.created_at <= horizon]
        readable = [item.key for item in items if _is_readable(item)]
        decisions = await self._ttl_store.get(Kind.DECISION, readable)
        tools = {key: orjson.loads(item.value).get("tool") for key, item in decisions.items()}
        forbidden = [key for key in readable if not self._may_persist(tools.get(key))]
        return await self._ttl_store.delete(Kind.QUERY, list({*expired, *forbidden}))

    async def _write(self, pending: Mapping[str, _Decision]) -> None:
        if len(pending) <= _MAX_INLINE:
            entries, queries = self._encoded(pending)
        else:
            entries, queries = await asyncio.to_thread(self._encoded, pending)
        writes = [Entries(Kind.DECISION, entries, RETENTION_DAYS * _DAY_SECONDS)]
        if self._options.surface.query_retention_days > 0 and queries:
            writes.append(Entries(Kind.QUERY, queries, self._retention_seconds()))
        try:
            await self._ttl_store.put_all(*writes)
        except StoreError as error:
            LOG.warning("decisions were not stored: %s", error)

    def _retention_seconds(self) -> float:
        return self._options.surface.query_retention_days * _DAY_SECONDS

    def _encoded(
        self, pending: Mapping[str, _Decision]
    ) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """The entries to write by id: the decisions, and their query texts."""
        entries = {
            key: orjson.dumps(_described(key, decision) | self._situation(decision))
            for key, decision in pending.items()
        }
        queries = {
            key: orjson.dumps(self._query_texts(decision))
            for key, decision in pending.items()
            if decision.outcome.queries
        }
        return entries, queries

    def _situation(self, decision: _Decision) -> dict[str, str]:
        """The situation of an episode, which contains words of the cue."""
        outcome = decision.outcome
        if isinstance(outcome, Skip) or not self._may_persist(decision.cue.tool):
            return {"situation": ""}
        return {"situation": _masked(outcome.situation).encode(errors="replace").decode()}

    def _query_texts(self, decision: _Decision) -> list[str]:
        texts = decision.outcome.queries
        if self._may_persist(decision.cue.tool):
            return [_masked(text).encode(errors="replace").decode() for text in texts]
        return [_digest(text) for text in texts]

    def _may_persist(self, tool: str | None) -> bool:
        return self._options.beside(Cue(door="", tool=tool)).surface.persist_query_text


def _described(key: str, decision: _Decision) -> dict[str, Any]:
    cue, outcome = decision.cue, decision.outcome
    skip = outcome if isinstance(outcome, Skip) else None
    hits = outcome.hits if isinstance(outcome, Surfacing) else ()
    return {
        "id": key,
        "at": cue.at,
        "door": str(cue.door),
        "principal": cue.principal.name,
        "tool": cue.tool,
        "moment": outcome.moment,
        "session": _shown_session(cue.session),
        "trace_id": cue.trace_id
        if _OWN_TRACE_ID.fullmatch(cue.trace_id)
        else redacted_start(cue.trace_id, 64),
        "outcome": str(skip.reason) if skip else "surfaced",
        "detail": skip.detail if skip else "",
        "late": decision.late,
        "confidence": round(outcome.confidence, 4),
        "signals": dict(outcome.signals),
        "intent": [str(outcome.intent.kind), outcome.intent.confidence, outcome.intent.source],
        "memories": [_scored(hit) for hit in hits],
        "evidence": {hit.memory.id: dict(hit.signals) for hit in hits},
        "held_back": [_scored(hit) for hit in outcome.held_back[:_MAX_HELD_BACK]],
        "took_ms": round(decision.took_ms, 2),
        "missing": [redacted_start(place, 200) for place in outcome.missing],
    }


@lru_cache(maxsize=64)
def _shown_session(session: str) -> str:
    return redacted_start(session, 200)


def _decoded(item: Item) -> dict[str, Any]:
    # Earlier versions wrote fewer fields.
    decision: dict[str, Any] = orjson.loads(item.value)
    return {
        "id": item.key,
        "late": False,
        "moment": "",
        "principal": "",
        "queries": [],
        "evidence": {},
        "situation": "",
        "missing": [],
        **decision,
    }


def _is_readable(item: Item) -> bool:
    return any(not text.startswith(DIGEST) for text in orjson.loads(item.value))


def _masked(text: str) -> str:
    return redact(text)[0]


def _digest(text: str) -> str:
    return DIGEST + hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _scored(hit: Hit) -> list[Any]:
    return [hit.memory.id, round(hit.score, 4)]
