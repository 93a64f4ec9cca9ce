"""Connects the dashboard's pages to the functions that provide their data."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from upwell.app.dashboard.changes import CHANGES
from upwell.app.dashboard.health import Servers, doctor, health, mend, set_up, setup
from upwell.app.dashboard.memory import detail, inbox, memories, memory, review, rules, trash
from upwell.app.dashboard.now import everything, now, rows, silence, stream
from upwell.app.dashboard.savings import savings
from upwell.app.dashboard.sessions import reading, session, sessionlist, sessions, shortened
from upwell.app.dashboard.thresholds import replay, thresholds
from upwell.app.dashboard.timeline import hindsight, timeline
from upwell.app.events import Event
from upwell.app.taught import sessions_read
from upwell.app.wiring import App
from upwell.hosts.installed import installed_entries
from upwell.web.dashboard.desk import Desk, Fields

Data = Callable[[App, Fields], Awaitable[Mapping[str, Any]]]
VIEWS: Mapping[str, Data] = {
    "now": now,
    "rows": rows,
    "learned": everything,
    "silence": silence,
    "sessions": sessions,
    "sessionlist": sessionlist,
    "reading": reading,
    "session": session,
    "timeline": timeline,
    "hindsight": hindsight,
    "shortened": shortened,
    "memory": memory,
    "memories": memories,
    "detail": detail,
    "inbox": inbox,
    "rules": rules,
    "review": review,
    "trash": trash,
    "thresholds": thresholds,
    "replay": replay,
    "savings": savings,
    "health": health,
    "doctor": doctor,
    "setup": setup,
}
"""Every view, keyed by the name of its template in `web/dashboard/templates/views`."""


def desk_of(
    app_now: Callable[[], App],
    servers: Servers = list,
    is_ending: Callable[[], bool] = lambda: False,
) -> Desk:
    """The views, the actions and the event stream of the dashboard. Each request calls `app_now()`,
    because a changed configuration replaces the app. `servers` lists the servers behind a gateway.
    Streams end soon after `is_ending()` becomes true."""
    views: Mapping[str, Data] = {**VIEWS, "health": partial(health, servers=servers)}
    actions = {**CHANGES, "setup": set_up, "mend": mend}

    async def view(data: Data, fields: Fields) -> Mapping[str, Any]:
        app = app_now()
        values = await data(app, fields)
        has_hooks = bool(installed_entries(app.config.home.hooks_file))
        return {"has_hooks": has_hooks, "past": await sessions_read(app), **values}

    async def follow(fields: Fields) -> AsyncIterator[Sequence[Event]]:
        async for fresh in stream(app_now(), fields):
            yield fresh
            if is_ending():
                return

    async def act(change: Callable[[App, Fields], Awaitable[str]], fields: Fields) -> str:
        return await change(app_now(), fields)

    return Desk(
        views={name: partial(view, data) for name, data in views.items()},
        actions={name: partial(act, change) for name, change in actions.items()},
        stream=follow,
    )
