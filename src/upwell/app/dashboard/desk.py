"""Connects the dashboard's pages to the functions that provide their data, and serves them for
`upwell dashboard`.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from upwell.app.dashboard import memory, now, sessions
from upwell.app.dashboard.memory import CHANGES
from upwell.app.dashboard.now import Servers
from upwell.app.lesson_book import sessions_read
from upwell.app.reporting import Shown
from upwell.app.store import Settings
from upwell.app.wiring import App, build
from upwell.config import load
from upwell.ground.errors import ConfigError
from upwell.ground.files import stamp
from upwell.ground.trace import LOG
from upwell.hosts.install import installed_entries
from upwell.web.dashboard.routes import PATH, Desk, Fields, dashboard_routes
from upwell.web.guard import Admission
from upwell.web.routes import http_app
from upwell.web.server import http_server, listen
from upwell.web.tokens import Tokens, token_of

Data = Callable[[App, Fields], Awaitable[Mapping[str, Any]]]
VIEWS: Mapping[str, Data] = {
    "now": now.now,
    "rows": now.rows,
    "learned": now.everything,
    "silence": now.silence,
    "sessions": sessions.sessions,
    "sessionlist": sessions.sessionlist,
    "reading": sessions.reading,
    "session": sessions.session,
    "timeline": sessions.timeline,
    "hindsight": sessions.hindsight,
    "shortened": sessions.shortened,
    "memory": memory.memory,
    "memories": memory.memories,
    "detail": memory.detail,
    "inbox": memory.inbox,
    "rules": memory.rules,
    "review": memory.review,
    "trash": memory.trash,
    "thresholds": now.thresholds,
    "replay": now.replay,
    "savings": now.savings,
    "health": now.health,
    "doctor": now.doctor,
    "setup": now.setup,
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
    views: Mapping[str, Data] = {**VIEWS, "health": partial(now.health, servers=servers)}
    actions = {**CHANGES, "setup": now.set_up, "mend": now.mend}

    async def view(data: Data, fields: Fields) -> Mapping[str, Any]:
        app = app_now()
        values = await data(app, fields)
        has_hooks = bool(installed_entries(app.config.home.hooks_file))
        return {"has_hooks": has_hooks, "past": await sessions_read(app), **values}

    async def follow(fields: Fields) -> AsyncIterator[Sequence[Shown]]:
        async for fresh in now.stream(app_now(), fields):
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


async def serve_dashboard(port: int, opened: Callable[[str], None]) -> None:
    """Serve the dashboard on loopback until a signal ends the process. `opened()` receives the
    address. It contains the token after a `#`, because browsers do not send that part to servers.

    Raises:
        UsageError: the port is in use.
        UpwellError: the home cannot be used.
    """
    app = await build(Settings(tolerant=True))
    try:
        home = app.config.home
        token = token_of(home.token_file)
        tokens = Tokens(token, home.tokens_file)
        routes = dashboard_routes(desk_of(_following_config(app)))
        server = http_server(http_app(routes, Admission(tokens.principal_of)))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, server, "should_exit", True)
        with contextlib.closing(listen("127.0.0.1", port)) as listening:
            port = listening.getsockname()[1]
            opened(f"http://127.0.0.1:{port}{PATH}#token={token}")
            await server.serve(sockets=[listening])
    finally:
        await app.aclose()


def _following_config(app: App) -> Callable[[], App]:
    """Return a function that returns the app. If `config.toml` has changed, the function first
    reads it again, so that the pages show the current price and limits."""
    home = app.config.home
    known = stamp(home.config_file)

    def app_now() -> App:
        nonlocal known
        if (changed := stamp(home.config_file)) != known:
            known = changed
            try:
                app.config = load(home.root, environment=app.config.environment)
            except ConfigError as error:
                LOG.warning("the changed configuration is not in effect: %s", error)
        return app

    return app_now
