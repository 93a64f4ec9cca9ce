"""What was decided and why: kept for `explain` and `stats`, off the hot path.

Query texts are kept for `query_retention_days`, with secrets masked, or only as digests when
`persist_query_text` is off (seed 000).
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from upwell.ground.errors import StoreError
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG
from upwell.ground.types import Cue, Hit, Skip, Surfacing
from upwell.surface.options import SurfaceOptions

DECISIONS = "decision"
OUTCOMES = "outcome"
FLUSH_SECONDS = 0.5
_DAY_SECONDS = 86_400.0
_MOST_HELD_BACK = 5


class Journal:
    """Decisions on their way to the shelf. `mask` takes secrets out of a text."""

    def __init__(self, shelf: Shelf, options: SurfaceOptions, mask: Callable[[str], str]) -> None:
        self._shelf = shelf
        self._options = options
        self._mask = mask
        self._pending: dict[str, tuple[Cue, Surfacing | Skip, float]] = {}
        self._counts: Counter[str] = Counter()
        self._flushing: asyncio.Task[None] | None = None

    def note(self, cue: Cue, outcome: Surfacing | Skip, key: str, took_ms: float) -> None:
        """Write a decision down, soon."""
        self._counts[outcome.reason if isinstance(outcome, Skip) else "surfaced"] += 1
        self._pending[key] = (cue, outcome, took_ms)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_soon())

    async def flush(self) -> None:
        """Bring what is pending to the shelf. A shelf that fails costs the journal, no more."""
        pending, counts = self._pending, self._counts
        if not pending:
            return
        self._pending, self._counts = {}, Counter()
        entries = await asyncio.to_thread(self._written, pending)
        ttl_seconds = self._options.query_retention_days * _DAY_SECONDS
        try:
            await self._shelf.put(DECISIONS, entries, ttl_seconds=ttl_seconds)
            await self._shelf.incr(OUTCOMES, counts, ttl_seconds=ttl_seconds)
        except StoreError as error:
            LOG.warning("decisions were not kept: %s", error)

    async def aclose(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        await self.flush()

    async def _flush_soon(self) -> None:
        while self._pending:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    def _written(
        self, pending: Mapping[str, tuple[Cue, Surfacing | Skip, float]]
    ) -> dict[str, bytes]:
        return {key: orjson.dumps(self._described(*entry)) for key, entry in pending.items()}

    def _described(self, cue: Cue, outcome: Surfacing | Skip, took_ms: float) -> dict[str, Any]:
        said = outcome.hits if isinstance(outcome, Surfacing) else ()
        return {
            "at": cue.at,
            "door": str(cue.door),
            "tool": cue.tool,
            "session": self._mask(cue.session[:200]),
            "trace_id": self._mask(cue.trace_id[:64]),
            "outcome": "surfaced" if isinstance(outcome, Surfacing) else str(outcome.reason),
            "detail": "" if isinstance(outcome, Surfacing) else outcome.detail,
            "confidence": round(outcome.confidence, 4),
            "signals": dict(outcome.signals),
            "intent": [str(outcome.intent.kind), outcome.intent.confidence, outcome.intent.source],
            "queries": [self._kept(text) for text in outcome.queries],
            "memories": [_scored(hit) for hit in said],
            "held_back": [_scored(hit) for hit in outcome.held_back[:_MOST_HELD_BACK]],
            "took_ms": round(took_ms, 2),
        }

    def _kept(self, text: str) -> str:
        if self._options.persist_query_text:
            return self._mask(text).encode(errors="replace").decode()
        return "sha256:" + hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _scored(hit: Hit) -> list[Any]:
    return [hit.memory.id, round(hit.score, 4)]
