"""Measures the states of past sessions: which would be said at the prompts of later ones?

    python benchmarks/states.py FOLDER [--host H] [--moments FILE --unit U] [--least 0.5]

FOLDER contains the transcripts of one project. Each session's record is kept when the session ends,
on a simulated clock, and each prompt is asked for the states that bear on it. Prints what would be
said (score, prompt and text), and at how many prompts. `--moments` is a file with one JSON object
per line, `{"unit", "session", "i", "kind", "strength", "key"}`: of the strong moments of the kind
"state of last work", those count as reached at which one of the two best states, said at this event
or earlier in the session, matches the pattern `key`.
"""

import argparse
import asyncio
import json
import re
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from upwell.episodes.events import Event, Kind
from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Hit, Query, QuerySource
from upwell.replay.run import SimulatedClock
from upwell.replay.timeline import Timeline
from upwell.replay.transcripts import format_named, transcripts_at
from upwell.sessions.index import SessionIndex
from upwell.sessions.recall import States
from upwell.sessions.turns import turns_of

MAX_SAID, MAX_PROMPT_CHARS = 2, 500


def strong_moments(path: Path | None, unit: str) -> dict[str, dict[str, Any]]:
    """The strong moments at which a state was missing, by session."""
    entries = map(json.loads, path.read_text().splitlines()) if path else ()
    return {
        entry["session"]: entry
        for entry in entries
        if entry["unit"] == unit
        and entry["strength"] == "strong"
        and entry["kind"].startswith("state of")
    }


async def measure(args: argparse.Namespace, folder: Path) -> None:
    clock = SimulatedClock()
    index = SessionIndex(folder / "sessions.db", lambda: [], clock=clock)
    states = States(folder / "sessions.db", clock=clock)
    moments = strong_moments(args.moments, args.unit)
    events: defaultdict[str, list[Event]] = defaultdict(list)
    prompts: Counter[str] = Counter()
    told: defaultdict[str, dict[str, Hit]] = defaultdict(dict)
    reached: set[str] = set()
    format = format_named(args.host) if args.host else None
    for event in Timeline(transcripts_at([args.folder], format), print):
        clock.advance(event.t)
        events[event.session].append(event)
        if event.kind is Kind.END:
            await index.add(list(turns_of(events.pop(event.session))))
        if event.kind is not Kind.PROMPT or event.text.startswith("/"):
            continue
        prompts[event.session] += 1
        query = Query(
            texts=(event.text[:MAX_PROMPT_CHARS],),
            session=event.session,
            prompts=prompts[event.session],
            source=QuerySource.MESSAGE,
            limit=MAX_SAID,
        )
        hits = (await states.search(query, Deadline.after(9.0))).hits
        for hit in hits:
            if hit.score >= args.least and hit.memory.id not in told[event.session]:
                told[event.session][hit.memory.id] = hit
                print(f"{hit.score:.2f} {event.text[:160]!r}\n     {hit.memory.text}")
        moment = moments.get(event.session)
        if moment and event.i <= moment["i"]:
            texts = (
                f"{hit.memory.text} {hit.memory.paths}" for hit in told[event.session].values()
            )
            if any(re.search(moment["key"], text) for text in texts):
                reached.add(event.session)
    said = sum(map(len, told.values()))
    print(f"{said} said at {prompts.total()} prompts; {len(reached)} of {len(moments)} moments")
    await index.aclose()
    await states.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--moments", type=Path)
    parser.add_argument("--unit", default="")
    parser.add_argument("--least", type=float, default=0.5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(args, Path(folder)))


if __name__ == "__main__":
    main()
