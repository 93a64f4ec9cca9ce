"""Four pages of the dashboard. Savings: tokens and money by host, project, tool and day. Health:
the findings of doctor, the servers, and the plan of setup. Now: what past sessions taught, the
latest events, and the stream of new ones. Thresholds: the scores that memories need, and the effect
of another threshold.
"""

import asyncio
import json
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from upwell import __version__
from upwell.app import reporting
from upwell.app.dashboard.sessions import is_indexed
from upwell.app.doctor import examine, lost_hooks
from upwell.app.lesson_book import learned
from upwell.app.reporting import Shown, events, following, gain, in_words, sentence
from upwell.app.running import run_command
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.ground.types.cue import SkipReason
from upwell.hosts import HOSTS
from upwell.hosts.install import installed_entries
from upwell.usage.report import COSTS, stats_of
from upwell.web.dashboard.routes import Fields

SPANS = (1, 7, 30, 90)
MAX_ROWS = 12


async def savings(app: App, fields: Fields) -> Mapping[str, Any]:
    """The gain over a number of days, with the points for a plot, and what shortening would have
    saved in past sessions, until it has saved something."""
    if "detail" in fields:
        return {}
    asked = fields.get("days", "")
    days = int(asked) if asked.isdigit() and int(asked) in SPANS else 30
    figures = await gain(app, days)
    shortens = app.config.hook.compress
    is_known = shortens and figures["total"]["results"]
    before = None if is_known else await app.session_capture().past()
    today, known = datetime.now(UTC).date(), {row["name"]: row for row in figures["by_day"]}
    names = [(today - timedelta(days=back)).isoformat() for back in reversed(range(days))]
    nothing = {"saved": 0, **dict.fromkeys(COSTS, 0)}
    by_day = [known.get(name, nothing) for name in names]

    def largest(dimension: str) -> list[Mapping[str, Any]]:
        counted = [row for row in figures[f"by_{dimension}"] if row["net"]]
        return sorted(counted, key=lambda row: -abs(row["net"]))[:MAX_ROWS]

    return {
        **figures,
        "before": before if before and before.saved else None,
        "shortens": shortens,
        "stats": await reporting.stats(app, days),
        "spans": SPANS,
        "sentence": sentence(figures),
        "tables": [
            ("Agent", largest("host")),
            ("Project", largest("project")),
            ("Tool", largest("tool")),
        ],
        "plot": {
            "days": names,
            "series": [
                {"label": "saved", "values": [row["saved"] for row in by_day]},
                {
                    "label": "upwell's own cost",
                    "values": [sum(row[cost] for cost in COSTS) for row in by_day],
                },
            ],
        },
    }


Servers = Callable[[], Sequence[Mapping[str, str]]]
"""Returns the `name`, `state` and `trouble` of each server behind a gateway."""
SETUP_SECONDS = 300.0
_MENDS = re.compile(r"upwell (hook install [a-z]+ --apply|daemon stop|backup)")
_COMMAND = re.compile(r"`(upwell [^`]{1,200})`")


async def health(app: App, fields: Fields, *, servers: Servers = list) -> Mapping[str, Any]:
    """The state of this home. `doctor` is a separate view, because it takes a while."""
    installed = installed_entries(app.config.home.hooks_file)
    lost = await asyncio.to_thread(lost_hooks, app.config)
    return {
        "version": __version__,
        "home": str(app.config.home.root),
        "paused": app.pause.anybody(),
        "excluded": app.config.projects.exclude,
        "servers": servers(),
        "hosts": [
            {
                "name": name,
                "title": host.title,
                "installed": name in installed and name not in lost,
                "lost": name in lost,
            }
            for name, host in HOSTS.items()
        ],
        "ltm": app.config.ltm.transport is not None or bool(app.config.ltm.url),
    }


async def doctor(app: App, fields: Fields) -> Mapping[str, Any]:
    """The findings of `upwell doctor`, with the command in each hint, if there is one."""
    parts = []
    async for name, ping in examine():
        command = _COMMAND.search(ping.hint)
        parts.append(
            {
                "name": name,
                "ok": ping.ok,
                "detail": ping.detail,
                "hint": ping.hint,
                "command": command.group(1) if command else "",
                "can_mend": bool(command and _MENDS.fullmatch(command.group(1))),
            }
        )
    return {"rows": parts}


async def setup(app: App, fields: Fields) -> Mapping[str, Any]:
    """The changes that `upwell setup` would make on this machine, and a summary."""
    plan = await run_command(app, "setup", "--dry-run", seconds=SETUP_SECONDS)
    changes, _, summary = plan.rpartition("upwell would\n")
    return {"summary": summary, "changes": changes}


async def set_up(app: App, fields: Fields) -> str:
    """Carry out the plan of `setup`."""
    await run_command(app, "setup", "--yes", seconds=SETUP_SECONDS)
    return "Set up. Restart your agents; `upwell setup --undo` reverts all of it."


async def mend(app: App, fields: Fields) -> str:
    """Run the command from one of doctor's hints, if it is one that the dashboard may run."""
    command = fields.get("command", "")
    if not _MENDS.fullmatch(command):
        raise UsageError("run this command in a terminal", hint=command)
    await run_command(app, *shlex.split(command)[1:], seconds=SETUP_SECONDS)
    return f"Done: {command}"


SHOWN = 60
SILENCE_DAYS = 30
_OPTIONS_FROM = 200
_TINY = 1e-6
SAME_CALL_SECONDS = 5.0
"""Within a session, a decision and a shortened result for the same tool and file belong to one call
if the result follows within this time."""
FILTERS = ("host", "project", "session", "tool", "file", "spoke")


async def now(app: App, fields: Fields) -> Mapping[str, Any]:
    """The newest events, and the values for the filters."""
    shown = await rows(app, fields)
    recent = await app.events.latest(_OPTIONS_FROM)
    options = {
        name: sorted({getattr(event, name) for event in recent} - {""})
        for name in ("host", "project", "tool")
    }
    return {
        **shown,
        "options": options,
        "is_empty": not recent,
        "after": recent[0].written if recent else 0.0,
        "paused": app.pause.anybody(),
    }


async def everything(app: App, fields: Fields) -> Mapping[str, Any]:
    """What past sessions taught, and which of these sessions have a page."""
    known = await learned(app)
    names = [name for taught in known.foremost for name in taught.sessions]
    indexed = await app.past_sessions().known_names(names) if is_indexed(app) else set[str]()
    return {"learned": known, "indexed": indexed}


async def silence(app: App, fields: Fields) -> Mapping[str, Any]:
    """Why upwell stayed silent in the last `SILENCE_DAYS` days, and how often."""
    skips = stats_of(await app.learning.counts.since(SILENCE_DAYS)).skips
    reasons = sorted(((n, in_words(why)) for why, n in skips.items() if n), reverse=True)
    return {"reasons": reasons, "days": SILENCE_DAYS}


async def rows(app: App, fields: Fields) -> Mapping[str, Any]:
    """The newest events, or the ones before the position `before`. The position is made of two
    times joined by `_`: when the last event shown was written, and when it happened.
    """
    written, _, at = fields.get("before", "").partition("_")
    if not _is_number(written) or not _is_number(at):
        shown = await events(app, _filters(fields), SHOWN)
    else:
        # Events that were written together have the same `written`, and a page may end among them.
        together = await events(app, _filters(fields), SHOWN, float(written) + _TINY)
        shown = [event for event in together if event["at"] < float(at)]
        shown = shown or await events(app, _filters(fields), SHOWN, float(written))
    more = len(shown) >= SHOWN // 2
    return {
        "rows": _joined_for(fields, shown),
        "next": f"{shown[-1]['written']}_{shown[-1]['at']}" if shown and more else None,
    }


async def stream(app: App, fields: Fields) -> AsyncIterator[Sequence[Shown]]:
    """New events that match the filters. If a decision and the shortened result of its call arrive
    separately, the later one is joined to the earlier one."""
    after = float(fields["after"]) if _is_number(fields.get("after")) else time.time()
    async for fresh in following(app, _filters(fields), after):
        if not fresh:
            yield []
            continue
        names = {event["id"] for event in fresh}
        latest = await events(app, _filters(fields), SHOWN)
        known = {event["id"] for event in latest}
        rest = [event for event in reversed(fresh) if event["id"] not in known]
        yield [
            *(
                row
                for row in _joined_for(fields, latest)
                if {row["id"], row.get("cut", row)["id"]} & names
            ),
            *rest,
        ]


def _joined_for(fields: Fields, shown: Sequence[Shown]) -> Sequence[Shown]:
    """Join the events, unless they are filtered by `spoke`. That filter removes the decisions in
    which nothing surfaced, so a shortened result might be joined to the wrong decision."""
    return shown if "spoke" in fields else joined(shown)


def joined(shown: Sequence[Shown]) -> list[Shown]:
    """The events, newest first. If they include a shortened result and the decision about the same
    call, the result becomes the decision's `cut`. A result that may belong to several decisions
    remains an event."""
    decisions = {event["id"]: event for event in shown if event["kind"] == "event"}
    cuts: dict[str, Shown] = {}
    for cut in reversed(shown):
        if cut["kind"] == "shortened":
            open_to = (name for name in decisions if name not in cuts)
            own = [name for name in open_to if _is_same_call(decisions[name], cut)]
            if len(own) == 1 and not _ended(decisions[own[0]], cut, shown):
                cuts[own[0]] = cut
    hidden = {cut["id"] for cut in cuts.values()}
    rows = [event for event in shown if event["id"] not in hidden]
    return [
        {**event, "cut": its_cut, "written": max(event["written"], its_cut["written"])}
        if (its_cut := cuts.get(event["id"]))
        else event
        for event in rows
    ]


def _is_same_call(decision: Shown, cut: Shown) -> bool:
    if decision["tool"] not in (cut["tool"], cut["tool"].removeprefix(f"{cut['host']}__")):
        return False
    if decision["trace_id"] and decision["trace_id"] == cut["trace_id"]:
        return True
    return (
        bool(cut["session"])
        and (decision["session"], decision["file"]) == (cut["session"], cut["file"])
        and 0 <= cut["at"] - decision["at"] <= SAME_CALL_SECONDS
    )


def _ended(decision: Shown, cut: Shown, shown: Sequence[Shown]) -> bool:
    """True if the turn ended between the decision and the shortened result. They then belong to
    different calls."""
    return any(
        event["kind"] == "event"
        and event["door"] != "tool"
        and event["session"] == cut["session"]
        and decision["at"] < event["at"] < cut["at"]
        for event in shown
    )


def _filters(fields: Fields) -> dict[str, str]:
    return {name: fields[name] for name in FILTERS if name in fields}


def _is_number(text: str | None) -> bool:
    return bool(text) and str(text).replace(".", "", 1).isdigit()


LOOKED_AT = 5_000
WHAT_IFS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
REPLAY_SECONDS = 120.0
REPLAY_SPANS = ("7d", "30d")
MAX_REPLAYED = 20


async def thresholds(app: App, fields: Fields) -> Mapping[str, Any]:
    """The thresholds in use. `what_if` lists several thresholds, each with the number of the latest
    decisions whose best memory reaches it."""
    decisions = await app.surfacer.journal.latest(LOOKED_AT)
    return {
        "learned": await reporting.learned(app),
        "min_score": app.config.surface.min_score,
        "auto_tune": app.config.learn.auto_tune,
        "what_if": _what_if(decisions),
    }


async def replay(app: App, fields: Fields) -> Mapping[str, Any]:
    """The memories that would have surfaced in past sessions, with a link to each session that has
    a page.

    Raises:
        UsageError: a field is invalid.
        UpwellError: the replay failed.
    """
    since = fields.get("since", REPLAY_SPANS[0])
    score = fields.get("min_score", str(app.config.surface.min_score))
    is_share = False
    with suppress(ValueError):
        is_share = 0.0 <= float(score) <= 1.0
    if since not in REPLAY_SPANS or not is_share:
        raise UsageError("a replay needs a time span and a score", hint="such as 30d and 0.5")
    try:
        output = await run_command(
            app,
            *("replay", "--since", since, "--json"),
            seconds=REPLAY_SECONDS,
            environment={"UPWELL_SURFACE__MIN_SCORE": score},
        )
    except UsageError as error:
        # Not reported as an error, because a new user has no sessions in this period.
        return {"since": since, "score": score, "trouble": str(error)}
    rows = [json.loads(line) for line in output.splitlines()]
    surfacings = [row for row in rows if row.get("memories")]
    summary: Mapping[str, Any] = next((row["summary"] for row in rows if "summary" in row), {})
    shown = surfacings[:MAX_REPLAYED]
    names = list({row["session"] for row in shown})
    return {
        "since": since,
        "score": score,
        "summary": summary,
        "said": shown,
        "more": len(surfacings) - len(shown),
        "linked": await app.past_sessions().known_names(names) if is_indexed(app) else (),
    }


def _what_if(decisions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each threshold, the number and percentage of decisions whose best memory reaches it."""
    scores = []
    for decision in decisions:
        if decision["memories"]:
            scores.append(max(score for _, score in decision["memories"]))
        elif decision["outcome"] == SkipReason.BELOW_MIN_SCORE and decision["held_back"]:
            scores.append(max(score for _, score in decision["held_back"]))
    events_count = len(decisions) or 1
    return {
        "events": len(decisions),
        "rows": [
            (limit, number, 100 * number / events_count)
            for limit in WHAT_IFS
            for number in [sum(score >= limit for score in scores)]
        ],
    }
