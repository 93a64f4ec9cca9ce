"""Decisions and shortened results as `upwell explain --follow` and the dashboard show them."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from upwell.app.overview import is_memory_empty, texts_of
from upwell.app.surfacing import LearningApp
from upwell.ground.types.surfacing import SkipReason
from upwell.surface.explain import reason_of, why_shown
from upwell.surface.render import preview
from upwell.usage.events import CUT

EXACT = ("host", "project", "session", "tool")
"""A filter on one of these fields has to match the whole value."""
POLL_SECONDS = 1.0
QUIET_POLLS = 5
_BATCH = 500
_COMMIT_SECONDS = 60.0
_TEXT_CHARS = 300
Event = dict[str, Any]


async def events(
    app: LearningApp,
    filters: Mapping[str, str],
    limit: int,
    before: float = math.inf,
    after: float = -math.inf,
) -> list[Event]:
    """The latest events that match and were written between `after` and `before`, newest first.
    `filters` may contain values for the fields in
    `EXACT`, a part of the `file`, and `spoke`, which selects the events in which a memory surfaced
    or a result was shortened.

    Raises:
        StoreError: the journal cannot be read.
    """
    await app.surfacer.journal.flush()
    await app.cuts.flush()
    rows = await app.events.latest(
        limit,
        before=before,
        after=after,
        matching={name: value for name, value in filters.items() if name in EXACT},
        file=filters.get("file", ""),
        spoke=bool(filters.get("spoke")),
    )
    decisions = [app.surfacer.journal.described(row) for row in rows if row.kind != CUT]
    cuts = [app.cuts.described(row) for row in rows if row.kind == CUT]
    shown = [*await _described_all(app, decisions), *cuts]
    return sorted(shown, key=lambda event: event["at"], reverse=True)


async def following(
    app: LearningApp, filters: Mapping[str, str], after: float
) -> AsyncIterator[Sequence[Event]]:
    """Yield matching events written after the time `after`, oldest first, as they arrive. While
    there are none, yield an empty list from time to time. Never ends.

    Raises:
        StoreError: the journal cannot be read.
    """
    quiet, seen = 0, set[tuple[str, float]]()
    while True:
        latest = await events(app, filters, _BATCH, after=after)
        fresh = [event for event in reversed(latest) if _version(event) not in seen]
        seen = {_version(event) for event in latest}
        quiet = 0 if fresh else quiet + 1
        if fresh or quiet >= QUIET_POLLS:
            quiet = 0
            yield fresh
        # Another process may still commit events that it wrote a moment ago.
        after = max([after, *(event["written"] - _COMMIT_SECONDS for event in latest)])
        await asyncio.sleep(POLL_SECONDS)


async def _described_all(app: LearningApp, found: Sequence[Mapping[str, Any]]) -> list[Event]:
    texts = await texts_of(app, [name for item in found for name, _ in item["memories"]])
    codes = {decision["outcome"] for decision in found}
    is_empty = SkipReason.NO_CANDIDATES in codes and await is_memory_empty(app)
    ratings = await app.learning.learned.ratings_given() if texts else {}
    return [_described(decision, texts, ratings, is_empty) for decision in found]


def _described(
    decision: Mapping[str, Any],
    texts: Mapping[str, str],
    ratings: Mapping[tuple[str, str], str],
    is_empty: bool,
) -> dict[str, Any]:
    evidence = decision["evidence"]
    memories = [
        {
            "id": memory_id,
            "score": score,
            "text": preview(texts[memory_id], (), _TEXT_CHARS) if memory_id in texts else "",
            "why": why_shown(decision, memory_id),
            "is_rule": "pinned" in evidence.get(memory_id, {}),
            "rating": str(ratings.get((decision["id"], memory_id), "")),
        }
        for memory_id, score in decision["memories"]
    ]
    return {
        "kind": "event",
        "id": decision["id"],
        "at": decision["at"],
        "written": decision["written"],
        "host": decision["host"],
        "project": decision["project"],
        "session": decision["session"],
        "trace_id": decision["trace_id"],
        "door": decision["door"],
        "tool": decision["tool"] or decision["door"],
        "file": decision["file"],
        "step": decision["step"],
        "moment": decision["moment"],
        "code": decision["outcome"],
        "is_routine": decision["outcome"] == SkipReason.ROUTINE,
        "reason": "" if memories else reason_of(decision, is_empty=is_empty),
        "memories": memories,
        "tokens": decision["tokens"],
        "took_ms": decision["took_ms"],
    }


def _version(event: Event) -> tuple[str, float]:
    """Identifies a version of an event. A changed decision is written again under the same id."""
    return event["id"], event["written"]
