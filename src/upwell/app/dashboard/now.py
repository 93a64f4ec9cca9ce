"""Now: what past sessions taught, the latest events, and the stream of new ones."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from upwell.app.dashboard.sessions import is_indexed
from upwell.app.events import Event, events, following
from upwell.app.reporting import in_words
from upwell.app.taught import learned
from upwell.app.wiring import App
from upwell.usage.stats import stats_of
from upwell.web.dashboard.desk import Fields

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


async def stream(app: App, fields: Fields) -> AsyncIterator[Sequence[Event]]:
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


def _joined_for(fields: Fields, shown: Sequence[Event]) -> Sequence[Event]:
    """Join the events, unless they are filtered by `spoke`. That filter removes the decisions in
    which nothing surfaced, so a shortened result might be joined to the wrong decision."""
    return shown if "spoke" in fields else joined(shown)


def joined(shown: Sequence[Event]) -> list[Event]:
    """The events, newest first. If they include a shortened result and the decision about the same
    call, the result becomes the decision's `cut`. A result that may belong to several decisions
    remains an event."""
    decisions = {event["id"]: event for event in shown if event["kind"] == "event"}
    cuts: dict[str, Event] = {}
    for cut in reversed(shown):
        if cut["kind"] == "shortened":
            open_to = (name for name in decisions if name not in cuts)
            own = [name for name in open_to if _is_same_call(decisions[name], cut)]
            if len(own) == 1 and not _ended(decisions[own[0]], cut, shown):
                cuts[own[0]] = cut
    hidden = {cut["id"] for cut in cuts.values()}
    return [_with_cut(event, cuts.get(event["id"])) for event in shown if event["id"] not in hidden]


def _with_cut(event: Event, cut: Event | None) -> Event:
    if cut is None:
        return event
    return {**event, "cut": cut, "written": max(event["written"], cut["written"])}


def _is_same_call(decision: Event, cut: Event) -> bool:
    if decision["tool"] not in (cut["tool"], cut["tool"].removeprefix(f"{cut['host']}__")):
        return False
    if decision["trace_id"] and decision["trace_id"] == cut["trace_id"]:
        return True
    return (
        bool(cut["session"])
        and (decision["session"], decision["file"]) == (cut["session"], cut["file"])
        and 0 <= cut["at"] - decision["at"] <= SAME_CALL_SECONDS
    )


def _ended(decision: Event, cut: Event, shown: Sequence[Event]) -> bool:
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
