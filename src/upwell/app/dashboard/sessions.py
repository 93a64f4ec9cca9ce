"""The sessions that upwell took part in or that have transcripts, the figures of one session, the
originals of its shortened results, and its timeline: the steps of its transcript, each with the
memories that surfaced or would have surfaced, or the reason why none did.
"""

import asyncio
import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from upwell.app.dashboard.compare import compared
from upwell.app.lesson_book import everything_taught
from upwell.app.lesson_book import taught_by_session as by_session
from upwell.app.reporting import Shown, events
from upwell.app.running import run_command
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.ground.types.cue import PROBE_SESSIONS
from upwell.learn.feedback import MemoryUse
from upwell.replay.transcripts.census import newest_of_user
from upwell.sessions.answer import SessionPart, SessionStep, parts_of
from upwell.sessions.index import SessionMatch, SessionScope
from upwell.sessions.record import ID as STATE_ID
from upwell.sessions.tables import SessionRow
from upwell.web.dashboard.routes import Fields

LOOKED_AT = 4_000
PAGE = 40
MAX_FOUND = 30
MAX_EVENTS = 1_000
READ_SECONDS = 0.5
"""Past sessions are indexed in steps of about this length, so that the page can show progress."""

_UNATTENDED: Mapping[str, Any] = {"events": 0, "said": 0, "used": 0, "saved": 0}
"""The figures of a session in which upwell took no part."""


async def sessions(app: App, fields: Fields) -> Mapping[str, Any]:
    """The first matching sessions, and the values for the filters."""
    if "id" in fields or "cut" in fields:
        return {}
    shown = await sessionlist(app, fields)
    projects, hosts = await app.past_sessions().choices() if is_indexed(app) else ([], [])
    is_filtered = any(name in fields for name in ("q", "project", "host"))
    return {
        **shown,
        "projects": projects,
        "hosts": hosts,
        "is_indexed": is_indexed(app),
        "is_empty": not shown["sessions"] and not projects and not is_filtered,
    }


async def sessionlist(app: App, fields: Fields) -> Mapping[str, Any]:
    """The sessions that match the search `q`, most relevant first. Without `q`, a page of the
    sessions of a `project` and a `host`, newest first, beginning after the position `before`."""
    scope = SessionScope(project=fields.get("project"), host=fields.get("host"))
    recent, taught = await _recent(app), by_session(await everything_taught(app))
    if "q" in fields:
        matches: Sequence[SessionMatch] = ()
        if is_indexed(app):
            matches = await app.past_sessions().search(fields["q"], scope, MAX_FOUND)
        found = [
            {
                **_recorded(match.session, recent),
                "turn": match.turn.number,
                "first": match.turn.question,
                "answer": match.turn.conclusion,
            }
            for match in matches
        ]
        return {"sessions": found, "next": None, "taught": taught}
    ended, _, name = fields.get("before", "").partition("_")
    try:
        before = (float(ended), name) if ended else None
    except ValueError:
        raise UsageError("the address of this page is damaged") from None
    earliest = (-before[0], before[1]) if before else (-math.inf, "")
    past, known = await _past(app, scope, before, recent)
    here = [
        entry
        for name, entry in recent.items()
        if name not in known
        and scope.project in (None, entry["project"])
        and scope.host in (None, entry["host"])
        and _order(entry) > earliest
    ]
    rows = sorted([*past, *here], key=_order)[:PAGE]
    has_more = len(past) + len(here) > PAGE or len(past) == PAGE
    last = rows[-1] if rows else None
    return {
        "sessions": rows,
        "taught": taught,
        "next": f"{last['ended']!r}_{last['id']}" if last and has_more else "",
    }


async def _past(
    app: App,
    scope: SessionScope,
    before: tuple[float, str] | None,
    recent: Mapping[str, Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], set[str]]:
    """A page of past sessions, and the names of those in `recent` that the index knows."""
    if not is_indexed(app):
        return [], set()
    past = app.past_sessions()
    entries = [
        {
            **_recorded(listed.session, recent),
            "first": listed.question,
            "answer": listed.conclusion,
        }
        for listed in await past.listed(scope, before, PAGE)
    ]
    return entries, await past.known_names(list(recent))


async def reading(app: App, fields: Fields) -> Mapping[str, Any]:
    """Index new parts of the transcripts for `READ_SECONDS`, and return how much is left. `fields`
    holds the `total` and `left` (bytes) that the previous step returned."""
    due = read = 0

    def show(done: int, total: int) -> None:
        nonlocal due, read
        read, due = done, total

    is_complete = await app.past_sessions().refresh(show, READ_SECONDS)
    left = due - read
    goes_on = not is_complete and left != _number(fields, "left")
    misread: list[str] = []
    if not goes_on:
        newest = await asyncio.to_thread(newest_of_user, Path.home(), Path.home())
        misread = list(newest.lines())
    return {
        "has_read": read > 0,
        # A step that makes no progress means that all remaining files are unreadable.
        "goes_on": goes_on,
        "misread": misread,
        "total": max(due, _number(fields, "total")),
        "left": left,
    }


def is_indexed(app: App) -> bool:
    """True if past sessions have been indexed."""
    return app.config.home.sessions_db.exists()


async def session(app: App, fields: Fields) -> Mapping[str, Any]:
    """The figures of a session. Its timeline is a separate view, because reading a transcript takes
    a while."""
    name = fields.get("id", "")
    attended = list(reversed(await events(app, {"session": name}, MAX_EVENTS)))
    past = await app.past_sessions().recorded(name) if is_indexed(app) else []
    cuts = [event for event in attended if event["kind"] == "shortened"]
    decisions = [event for event in attended if event["kind"] == "event"]
    used = await verdicts(app)
    summary = _session(name, list(reversed(decisions)), used, 0) if decisions else None
    if past and summary is None:
        first, last = past[0], past[-1]
        # A bare command such as `/clear` does not name a session.
        questions = [match.turn.question for match in past]
        named = [each for each in questions if not each.startswith("/") or " " in each]
        summary = {
            **_UNATTENDED,
            "id": name,
            "host": first.session.host,
            "project": first.session.project,
            "began": first.turn.at,
            "ended": last.session.ended,
            "first": (named or questions)[0],
        }
    return {
        "name": name,
        "taught": by_session(await everything_taught(app)).get(name, []),
        "state": await app.memory.get(f"{STATE_ID}{name}") if past else None,
        "summary": summary,
        "turns": len(past),
        "attended": bool(attended),
        "before": sum(cut["before"] for cut in cuts),
        "after": sum(cut["after"] for cut in cuts),
    }


async def shortened(app: App, fields: Fields) -> Mapping[str, Any]:
    """The original of a shortened result next to what the agent saw.

    Raises:
        UsageError: the original, or what the agent saw, is not stored.
    """
    name = fields.get("id", "")
    pairs = await app.cuts.texts(name)
    if not pairs:
        raise UsageError(
            "this text is no longer stored",
            hint="raise compress.original_ttl_seconds to keep texts longer",
        )
    return {
        "texts": [await asyncio.to_thread(compared, *pair) for pair in pairs],
        "session": await app.cuts.session_of(name),
    }


def _session(
    name: str, entries: Sequence[Shown], used: Mapping[tuple[str, str], str], saved: int
) -> dict[str, Any]:
    newest, oldest = entries[0], entries[-1]
    # Events that are shown describe their memories; decisions in the journal list pairs.
    surfaced = [
        (entry["id"], str(memory["id"] if isinstance(memory, Mapping) else memory[0]))
        for entry in entries
        for memory in entry["memories"]
    ]
    prompts = (entry["step"] for entry in reversed(entries) if entry["door"] == "prompt")
    return {
        "id": name,
        # A call through the gateway does not name its host; the hook event of the same call does.
        "host": next((entry["host"] for entry in entries if entry["host"]), ""),
        "project": newest["project"],
        "began": oldest["at"],
        "ended": newest["at"],
        "events": len(entries),
        "said": len(surfaced),
        "used": sum(used.get(key) == MemoryUse.USED for key in surfaced),
        "saved": saved,
        "first": next(prompts, ""),
    }


def _recorded(session: SessionRow, recent: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        **recent.get(session.name, _UNATTENDED),
        "id": session.name,
        "host": session.host,
        "project": session.project,
        "ended": session.ended,
        "turns": session.turns,
    }


async def _recent(app: App) -> dict[str, dict[str, Any]]:
    """The sessions of the latest decisions, keyed by name, except those in which setup tested
    hooks."""
    by_session: defaultdict[str, list[Shown]] = defaultdict(list)
    for event in await app.surfacer.journal.latest(LOOKED_AT):
        if event["session"] and not event["session"].startswith(PROBE_SESSIONS):
            by_session[event["session"]].append(event)
    used = await verdicts(app)
    saved: defaultdict[str, int] = defaultdict(int)
    for cut in await app.cuts.latest(LOOKED_AT):
        saved[cut["session"]] += cut["before"] - cut["after"]
    return {
        name: {"turns": 0, **_session(name, entries, used, saved[name])}
        for name, entries in by_session.items()
    }


def _order(entry: Mapping[str, Any]) -> tuple[float, str]:
    return -entry["ended"], entry["id"]


def _number(fields: Fields, name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


async def verdicts(app: App) -> dict[tuple[str, str], str]:
    """Whether each memory was used or ignored, keyed by surfacing id and memory id."""
    return {
        (sighting.sample.surfacing, sighting.sample.memory): str(sighting.sample.evidence)
        for sighting in await app.learning.sightings()
    }


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
    shown = [(event, memory) for event in seen for memory in event["memories"]]
    used = await verdicts(app) if shown else {}
    for event, memory in shown:
        memory["use"] = used.get((event["id"], memory["id"]), "")
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
    output = await run_command(app, "replay", *own, *earlier, "--json", seconds=REPLAY_SECONDS)
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


def _start(matches: Sequence[SessionMatch], fields: Fields) -> int:
    turn, start = fields.get("turn", ""), fields.get("start", "")
    if start.isascii() and start.isdigit():
        return min(int(start[:9]), len(matches) - 1)
    return next((i for i, match in enumerate(matches) if str(match.turn.number) == turn), 0)


def _part_at(parts: Sequence[SessionPart], event: Shown) -> SessionPart:
    """The latest turn that had begun when an event happened, give or take a second. The margin is
    larger for a prompt, because a hook reports it shortly before or after the transcript records
    it."""
    margin = _AT_ONCE_SECONDS if event["kind"] == "event" and event["door"] == "prompt" else 1.0
    return next((part for part in reversed(parts) if part.at <= event["at"] + margin), parts[0])


def _with_events(part: SessionPart, seen: Sequence[Shown]) -> dict[str, Any]:
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


def _step_at(steps: Sequence[SessionStep], event: Shown, taken: Mapping[int, str]) -> int | None:
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
