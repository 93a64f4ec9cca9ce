"""Sessions: those of the latest events, and one of them as a timeline."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.app.events import Event, events
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.hosts.base import PROBE_SESSIONS
from upwell.learn.thresholds import Use
from upwell.web.dashboard.desk import Fields

LOOKED_AT = 4_000
MAX_SESSIONS = 100
MAX_EVENTS = 1_000
MAX_LINES = 4_000


async def sessions(app: App, fields: Fields) -> Mapping[str, Any]:
    """The sessions of the latest events, newest first, without those in which setup tried hooks."""
    by_session: defaultdict[str, list[Event]] = defaultdict(list)
    for event in await app.surfacer.journal.latest(LOOKED_AT):
        if event["session"] and not event["session"].startswith(PROBE_SESSIONS):
            by_session[event["session"]].append(event)
    used = await _verdicts(app)
    saved: defaultdict[str, int] = defaultdict(int)
    for cut in await app.cuts.latest(LOOKED_AT):
        saved[cut["session"]] += cut["before"] - cut["after"]
    described = [_session(name, entries, used, saved[name]) for name, entries in by_session.items()]
    return {"sessions": described[:MAX_SESSIONS], "looked_at": LOOKED_AT}


async def session(app: App, fields: Fields) -> Mapping[str, Any]:
    """One session as a timeline, oldest first."""
    name = fields.get("id", "")
    timeline = list(reversed(await events(app, {"session": name}, MAX_EVENTS)))
    used = await _verdicts(app)
    for event in timeline:
        for memory in event["memories"]:
            memory["use"] = used.get((event["id"], memory["id"]), "")
    cuts = [event for event in timeline if event["kind"] == "shortened"]
    decisions = [event for event in timeline if event["kind"] == "event"]
    return {
        "name": name,
        "timeline": timeline,
        "summary": _session(name, list(reversed(decisions)), used, 0) if decisions else None,
        "before": sum(cut["before"] for cut in cuts),
        "after": sum(cut["after"] for cut in cuts),
        "is_cut": len(timeline) == MAX_EVENTS,
    }


async def shortened(app: App, fields: Fields) -> Mapping[str, Any]:
    """The original of a shortened result beside what the agent saw.

    Raises:
        UsageError: it is no longer stored.
    """
    pairs = await app.cuts.texts(fields.get("id", ""))
    if not pairs:
        raise UsageError(
            "this text is no longer stored", hint="compress.original_ttl_seconds keeps texts longer"
        )
    return {"texts": [_beside(original, seen) for original, seen in pairs]}


def _beside(original: str, seen: str) -> Mapping[str, Any]:
    """The lines of the original, each with whether it stands in what the agent saw."""
    every = original.splitlines()
    lines, shown = every[:MAX_LINES], {line.strip() for line in seen.splitlines()}
    marked = [(number, line, line.strip() in shown) for number, line in enumerate(lines)]
    return {
        "blocks": _blocks(marked),
        "seen": seen,
        "omitted": sum(not was_seen for _, _, was_seen in marked),
        "lines": len(every),
        "is_cut": len(every) > MAX_LINES,
    }


def _blocks(marked: Sequence[tuple[int, str, bool]]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for number, line, seen in marked:
        if not blocks or blocks[-1]["seen"] != seen:
            blocks.append({"seen": seen, "first": number + 1, "lines": []})
        blocks[-1]["lines"].append(line)
    return blocks


def _session(
    name: str, entries: Sequence[Event], used: Mapping[tuple[str, str], str], saved: int
) -> dict[str, Any]:
    newest, oldest = entries[0], entries[-1]
    surfaced = [(entry["id"], _id_of(memory)) for entry in entries for memory in entry["memories"]]
    prompts = (entry["step"] for entry in reversed(entries) if entry["door"] == "prompt")
    return {
        "id": name,
        "host": newest["host"],
        "project": newest["project"],
        "began": oldest["at"],
        "ended": newest["at"],
        "events": len(entries),
        "said": len(surfaced),
        "used": sum(used.get(key) == Use.USED for key in surfaced),
        "saved": saved,
        "first": next(prompts, ""),
    }


def _id_of(memory: Any) -> str:
    return str(memory["id"] if isinstance(memory, Mapping) else memory[0])


async def _verdicts(app: App) -> dict[tuple[str, str], str]:
    """(surfacing, memory) → used or ignored."""
    return {
        (sighting.sample.surfacing, sighting.sample.memory): str(sighting.sample.evidence)
        for sighting in await app.learning.sightings()
    }
