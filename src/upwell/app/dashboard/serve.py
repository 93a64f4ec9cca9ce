"""The server of `upwell dashboard`."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

from upwell.app.dashboard.desk import desk_of
from upwell.app.store import Settings
from upwell.app.wiring import App, build
from upwell.config import read_valid
from upwell.ground.errors import ConfigError
from upwell.ground.files import stamp
from upwell.ground.trace import LOG
from upwell.web.admission import Admission
from upwell.web.dashboard.routes import PATH, dashboard_routes
from upwell.web.routes import http_app
from upwell.web.server import http_server, listen
from upwell.web.tokens import Tokens, token_of


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
                app.config, _ = read_valid(home.root, environment=app.config.environment)
            except ConfigError as error:
                LOG.warning("the changed configuration is not in effect: %s", error)
        return app

    return app_now
