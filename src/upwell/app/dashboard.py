"""The data of `/dashboard`, and the server of `upwell dashboard`."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from typing import Any

from upwell import __version__
from upwell.app import overview
from upwell.app.principals import team_token
from upwell.app.wiring import App, Settings, build
from upwell.ground.text.format import iso
from upwell.web.admission import Admission
from upwell.web.dashboard import PATH, PageData, dashboard_routes
from upwell.web.routes import http_app
from upwell.web.server import http_server, listen
from upwell.web.tokens import Tokens, token_of

Servers = Callable[[], list[dict[str, str]]]
"""The servers behind a gateway: `name`, `state` and `trouble` of each."""


def page_data(app: App, servers: Servers = list) -> PageData:
    """The sources of the data on the page."""

    async def recent(number: int) -> Mapping[str, Any]:
        accounts = await overview.accounts(app, await overview.decisions(app, number))
        decisions = [
            {
                "id": decision["id"],
                "at": decision["at"],
                "time": iso(decision["at"]),
                "session": decision["session"],
                "memories": len(decision["memories"]),
                "account": account,
            }
            for decision, account in reversed(accounts)
        ]
        return {"version": __version__, "decisions": decisions, "servers": servers()}

    async def memories(query: str, limit: int) -> Mapping[str, Any]:
        return {"hits": await overview.memories(app, query, limit)}

    async def stats(days: int) -> Mapping[str, Any]:
        await app.learning.counts.flush()
        return await overview.stats(app, days)

    return PageData(stats=stats, recent=recent, memories=memories)


async def serve_dashboard(port: int, opened: Callable[[str], None]) -> None:
    """Serve the page on loopback until a signal ends the process. `opened` receives its address,
    with the token after the `#`, where no server and no log sees it.

    Raises:
        UsageError: the port is in use.
        UpwellError: the home cannot be used.
    """
    app = await build(Settings(tolerant=True))
    try:
        home = app.config.home
        token = token_of(home.token_file)
        tokens = Tokens(token, home.tokens_file, team_token(app.config))
        admission = Admission(tokens.principal_of)
        server = http_server(http_app(dashboard_routes(page_data(app)), admission))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, server, "should_exit", True)
        with contextlib.closing(listen("127.0.0.1", port)) as listening:
            port = listening.getsockname()[1]
            opened(f"http://127.0.0.1:{port}{PATH}#token={token}")
            await server.serve(sockets=[listening])
    finally:
        await app.aclose()
