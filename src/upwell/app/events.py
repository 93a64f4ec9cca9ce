"""Decisions and shortened results as `upwell explain --follow` and the dashboard show them."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from upwell.app.overview import is_memory_empty, texts_of
from upwell.app.wiring import App
from upwell.ground.types.surfacing import SkipReason
from upwell.surface.explain import reason_of, why_shown
from upwell.surface.render import preview

EXACT = ("host", "project", "session", "tool")
"""A filter on one of these fields has to match the whole value."""
POLL_SECONDS = 1.0
QUIET_POLLS = 5
MAX_LOOKED_AT = 5_000
_BATCH = 500
_TEXT_CHARS = 300
Event = dict[str, Any]


async def events(
    app: App, filters: Mapping[str, str], limit: int, before: float = math.inf
) -> list[Event]:
    """The latest events that match, newest first. `filters` may contain values for the fields in
    `EXACT`, a part of the `file`, and `spoke`, which selects the events in which a memory surfaced
    or a result was shortened.

    Raises:
        StoreError: the journal cannot be read.
    """
    decisions = await _decisions(app, filters, limit, before)
    earliest = decisions[-1]["written"] if len(decisions) == limit else 0.0
    cuts = [
        cut
        for cut in await app.cuts.latest(limit, matching=_exact(filters))
        if earliest <= cut["at"] < before and _matches_file(cut, filters)
    ]
    return sorted([*decisions, *cuts], key=lambda event: event["at"], reverse=True)[:limit]


async def following(
    app: App, filters: Mapping[str, str], after: float
) -> AsyncIterator[Sequence[Event]]:
    """Yield matching events written after the time `after`, oldest first, as they arrive. While
    there are none, yield an empty list from time to time. Never ends.

    Raises:
        StoreError: the journal cannot be read.
    """
    quiet, seen = 0, set[tuple[str, float]]()
    while True:
        latest = await events(app, {}, _BATCH)
        fresh = [
            event
            for event in reversed(latest)
            if event["written"] > after and _version(event) not in seen
        ]
        seen = {_version(event) for event in latest}
        matches = [event for event in fresh if is_match(event, filters)]
        quiet = 0 if matches else quiet + 1
        if matches or quiet >= QUIET_POLLS:
            quiet = 0
            yield matches
        await asyncio.sleep(POLL_SECONDS)


def is_match(event: Event, filters: Mapping[str, str]) -> bool:
    """True if an event passes the filters of `events()`."""
    exact = all(event.get(name) == value for name, value in _exact(filters).items())
    wants_speech = bool(filters.get("spoke"))
    spoke = event["kind"] == "shortened" or bool(event["memories"])
    return exact and _matches_file(event, filters) and (spoke or not wants_speech)


async def _decisions(
    app: App, filters: Mapping[str, str], limit: int, before: float
) -> list[dict[str, Any]]:
    journal = app.surfacer.journal
    exact = _exact(filters) | ({"outcome": "surfaced"} if filters.get("spoke") else {})
    found: list[dict[str, Any]] = []
    looked_at = 0
    while len(found) < limit and looked_at < MAX_LOOKED_AT:
        size = limit if "file" not in filters else _BATCH
        batch = await journal.latest(size, before=before, matching=exact)
        found += [decision for decision in batch if _matches_file(decision, filters)]
        looked_at += len(batch)
        if len(batch) < size:
            break
        before = batch[-1]["written"]
    found = found[:limit]
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


def _exact(filters: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in filters.items() if name in EXACT}


def _matches_file(event: Event, filters: Mapping[str, str]) -> bool:
    return filters.get("file", "").lower() in str(event.get("file", "")).lower()


def _version(event: Event) -> tuple[str, float]:
    """Identifies a version of an event. A changed decision is written again under the same id."""
    return event["id"], event["written"]
