"""A session as a timeline: the steps of its transcript, each with the memories that surfaced or
would have surfaced, or the reason why none did."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from upwell.app.dashboard.commands import run_command
from upwell.app.dashboard.sessions import MAX_EVENTS, is_indexed, verdicts
from upwell.app.events import Event, events
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.sessions.index import SessionMatch, SessionScope
from upwell.sessions.steps import SessionPart, SessionStep, parts_of
from upwell.web.dashboard.desk import Fields

TURNS = 12
"""The number of turns on a page."""
REPLAY_SECONDS = 120.0
MAX_EARLIER, MAX_EARLIER_BYTES = 60, 40_000_000
"""A session's replay learns from at most this many earlier sessions and bytes of transcripts."""
_AT_ONCE_SECONDS = 30.0
"""The largest time difference between a decision and its step in the transcript."""


async def timeline(app: App, fields: Fields) -> Mapping[str, Any]:
    """Some turns of a session, beginning with the turn `turn` or at the position `start`. A session
    without a transcript has only the events that upwell saw."""
    name = fields.get("id", "")
    seen = list(reversed(await events(app, {"session": name}, MAX_EVENTS)))
    await _with_use(app, seen)
    matches = await app.past_sessions().recorded(name) if is_indexed(app) else []
    if not matches:
        return {"parts": [{"items": seen}], "is_cut": len(seen) == MAX_EVENTS, "next": None}
    start = _start(matches, fields)
    chosen = matches[start : start + TURNS]
    parts = await asyncio.to_thread(parts_of, chosen)
    after = matches[start + TURNS : start + TURNS + 1]
    ends = after[0].turn.at if after else float("inf")
    begins = parts[0].at if start else 0.0
    own = [event for event in seen if begins - 1 <= event["at"] < ends - 1]
    return {
        "parts": [
            _with_events(part, [event for event in own if _part_at(parts, event) is part])
            for part in parts
        ],
        "earlier": start if "turn" in fields else 0,
        "next": start + TURNS if after else None,
        "left": len(matches) - start - TURNS,
        "is_cut": False,
    }


async def hindsight(app: App, fields: Fields) -> Mapping[str, Any]:
    """Replay this session, and return the memories that would have surfaced. The replay has the
    memories from before that time that are still stored, and learns from earlier sessions in the
    same project.

    Raises:
        UsageError: the transcript is gone, or the replay takes too long.
        UpwellError: the replay failed.
    """
    name = fields.get("id", "")
    matches = await app.past_sessions().recorded(name) if is_indexed(app) else []
    own = dict.fromkeys(match.session.path for match in matches)
    if not own or not all(map(os.path.exists, own)):
        raise UsageError("the transcript of this session is gone")
    first = matches[0]
    earlier = await _earlier(app, first)
    output = await run_command(
        app, "replay", *own, *earlier, "--json", seconds=REPLAY_SECONDS
    )  # fmt: skip
    rows = [json.loads(line) for line in output.splitlines()]
    decisions = [row for row in rows if row.get("session") == name]
    return {
        "events": len(decisions),
        "said": [row for row in decisions if row["memories"]],
        "earlier": len(earlier),
    }


async def _earlier(app: App, first: SessionMatch) -> list[str]:
    """The transcripts of the sessions that ended before this one began, newest first."""
    session = first.session
    before = await app.past_sessions().listed(
        SessionScope(project=session.project), (session.began, ""), MAX_EARLIER
    )
    paths: list[str] = []
    size = 0
    for path in dict.fromkeys(listed.session.path for listed in before):
        try:
            size += os.stat(path).st_size
        except OSError:
            continue
        if size > MAX_EARLIER_BYTES:
            break
        if path != session.path:
            paths.append(path)
    return paths


async def _with_use(app: App, seen: Sequence[Event]) -> None:
    if not any(event["memories"] for event in seen if event["kind"] == "event"):
        return
    used = await verdicts(app)
    for event in seen:
        for memory in event["memories"]:
            memory["use"] = used.get((event["id"], memory["id"]), "")


def _start(matches: Sequence[SessionMatch], fields: Fields) -> int:
    turn, start = fields.get("turn", ""), fields.get("start", "")
    if start.isascii() and start.isdigit():
        return min(int(start[:9]), len(matches) - 1)
    return next((i for i, match in enumerate(matches) if str(match.turn.number) == turn), 0)


def _part_at(parts: Sequence[SessionPart], event: Event) -> SessionPart:
    """The latest turn that had begun when an event happened, give or take a second. The margin is
    larger for a prompt, because a hook reports it shortly before or after the transcript records
    it."""
    margin = _AT_ONCE_SECONDS if event["kind"] == "event" and event["door"] == "prompt" else 1.0
    return next((part for part in reversed(parts) if part.at <= event["at"] + margin), parts[0])


def _with_events(part: SessionPart, seen: Sequence[Event]) -> dict[str, Any]:
    """A turn with its steps and events in chronological order. The reason for a silence is shown
    with the step at which upwell stayed silent."""
    why: dict[int, str] = {}
    rows: list[tuple[float, int, Any]] = []
    prompt_why = ""
    for event in seen:
        is_silent = event["kind"] == "event" and not event["memories"]
        place = _step_at(part.steps, event, why) if is_silent else None
        if is_silent and event["door"] == "prompt" and not prompt_why:
            prompt_why = event["reason"]
        elif place is not None:
            why[place] = event["reason"]
        else:
            rows.append((event["at"], 1, event))
    for number, step in enumerate(part.steps):
        shown = {"kind": "step", "step": step, "why": why.get(number, "")}
        rows.append((step.at, 0, shown))
    return {
        "part": part,
        "why": prompt_why,
        "items": [item for _, _, item in sorted(rows, key=lambda row: row[:2])],
    }


def _step_at(steps: Sequence[SessionStep], event: Event, taken: Mapping[int, str]) -> int | None:
    """The index of the step to which a decision belongs: a call of the same tool that has no
    decision yet. A step with the same command is preferred, then the nearest one in time."""
    near = [
        (not step.text.startswith(event["step"]), distance, number)
        for number, step in enumerate(steps)
        if number not in taken and step.tool and step.tool == event["tool"]
        for distance in [abs(step.at - event["at"])]
        if distance <= _AT_ONCE_SECONDS
    ]
    return min(near)[2] if near else None
