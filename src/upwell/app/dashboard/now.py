"""Now: the latest events, and the stream of new ones."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from upwell.app.events import Event, events, following
from upwell.app.wiring import App
from upwell.web.dashboard.desk import Fields

SHOWN = 60
_OPTIONS_FROM = 200
_TINY = 1e-6
FILTERS = ("host", "project", "session", "tool", "file", "spoke")


async def now(app: App, fields: Fields) -> Mapping[str, Any]:
    """The newest events, and the values to filter by."""
    recent = await app.surfacer.journal.latest(_OPTIONS_FROM)
    options = {
        name: sorted({str(event[name]) for event in recent if event[name]})
        for name in ("host", "project", "tool")
    }
    return {
        **await rows(app, fields),
        "options": options,
        "is_empty": not recent,
        "after": recent[0]["written"] if recent else 0.0,
        "paused": app.pause.anybody(),
    }


async def rows(app: App, fields: Fields) -> Mapping[str, Any]:
    """The newest events, or the next older ones after `before`. That position consists of the times
    at which the last event shown was written and at which it happened, joined by `_`."""
    written, _, at = fields.get("before", "").partition("_")
    if not _is_number(written) or not _is_number(at):
        shown = await events(app, _filters(fields), SHOWN)
    else:
        # Events that were written together share a time, and a page may end between them.
        together = await events(app, _filters(fields), SHOWN, float(written) + _TINY)
        shown = [event for event in together if event["at"] < float(at)]
        shown = shown or await events(app, _filters(fields), SHOWN, float(written))
    more = len(shown) >= SHOWN // 2
    return {
        "rows": shown,
        "next": f"{shown[-1]['written']}_{shown[-1]['at']}" if shown and more else None,
    }


async def stream(app: App, fields: Fields) -> AsyncIterator[Sequence[Event]]:
    """New events that pass the filters."""
    after = float(fields["after"]) if _is_number(fields.get("after")) else time.time()
    async for fresh in following(app, _filters(fields), after):
        yield list(reversed(fresh))


def _filters(fields: Fields) -> dict[str, str]:
    return {name: fields[name] for name in FILTERS if name in fields}


def _is_number(text: str | None) -> bool:
    return bool(text) and str(text).replace(".", "", 1).isdigit()
