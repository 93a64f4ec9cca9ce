"""`upwell serve --http`: the gateway for any number of agents, and the other HTTP endpoints. Among
them are the metrics of its work, its servers, the team's database, and the process.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute, Route

from upwell import __version__
from upwell.app.dashboard.desk import desk_of
from upwell.app.running import housekeeping, report_problems
from upwell.app.store import Settings
from upwell.app.team import team_access
from upwell.app.wiring import App, build
from upwell.gateway.front.http import PATH
from upwell.gateway.server import Gateway
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.ground.background import BackgroundTasks
from upwell.ground.trace import HISTOGRAMS, LOG, METERS, export_spans
from upwell.web.dashboard.routes import dashboard_routes
from upwell.web.guard import Admission, Denials
from upwell.web.oidc import open_oidc
from upwell.web.routes import (
    Metric,
    counted,
    gauge,
    health_routes,
    hook_routes,
    http_app,
    of_histogram,
    of_meter,
)
from upwell.web.server import NOTICE_SECONDS, address_of, http_server, is_loopback, listen, url_of
from upwell.web.team import TeamDoor
from upwell.web.tokens import Tokens, token_of

_STARTED_AT = time.time()


def gateway_metrics(app: App, gateway: Gateway) -> list[Metric]:
    """All metrics of a gateway. No label contains the name of a principal."""
    return [
        *_of_servers(gateway),
        *map(of_meter, METERS),
        *map(of_histogram, HISTOGRAMS),
        *_of_database(app),
        *process_metrics(),
    ]


def process_metrics() -> list[Metric]:
    """Memory, processor time, open files and start time of this process, under the names that
    Prometheus clients use."""
    open_files = 0
    with suppress(OSError):
        open_files = len(os.listdir("/proc/self/fd"))
    return [
        gauge("process_resident_memory_bytes", "Resident memory", rss_bytes()),
        counted("process_cpu_seconds_total", "Processor time of this process", time.process_time()),
        gauge("process_open_fds", "Open files and connections", open_files),
        gauge("process_start_time_seconds", "Start time, in seconds since 1970", _STARTED_AT),
    ]


def rss_bytes() -> int:
    """The resident memory of this process; 0 if /proc does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _of_servers(gateway: Gateway) -> Sequence[Metric]:
    ready = [upstream for upstream in gateway.upstreams if upstream.state is ServerState.READY]
    states = {_server(upstream.name): float(upstream in ready) for upstream in gateway.upstreams}
    in_flight = {_server(upstream.name): float(upstream.busy) for upstream in gateway.upstreams}
    return [
        gauge("upwell_upstreams", "Servers behind the gateway", len(gateway.upstreams)),
        gauge("upwell_upstreams_ready", "Servers that can be called", len(ready)),
        Metric("upwell_upstream_up", "Whether a server can be called", "gauge", states),
        Metric("upwell_calls_in_flight", "Requests in flight at a server", "gauge", in_flight),
        gauge("upwell_sessions", "Connected agents", len(gateway.audience.sessions)),
    ]


def _server(name: str) -> tuple[tuple[str, str], ...]:
    return (("server", name),)


def _of_database(app: App) -> Sequence[Metric]:
    if app.postgres is None:
        return []
    use, of_team = app.postgres.use, "to the team's database"
    figures = (
        ("up", f"0 while there is no connection {of_team}", float(not use.is_lost)),
        ("connections", f"Open connections {of_team}", use.connections),
        ("connections_busy", f"Connections {of_team} in use", use.busy),
        ("connections_max", f"Maximum number of connections {of_team}", use.most),
        ("waiting", f"Requests waiting for a connection {of_team}", use.waiting),
    )
    return [gauge(f"upwell_database_{name}", text, value) for name, text, value in figures]


async def serve_http(address: str, cwd: str, say: Callable[[str], None]) -> None:
    """Serve `/mcp`, `/team`, `/hook`, `/dashboard`, `/healthz`, `/readyz` and `/metrics` at
    `HOST:PORT` until a signal ends the process. `say()` receives the invalid settings, and then the
    address and the path of the token.

    Raises:
        UsageError: the address is invalid or in use.
        ConfigError: a key of `oidc.*` is at fault.
        UpwellError: the home cannot be used.
    """
    host, port = address_of(address)
    app = await build(Settings(tolerant=True, cwd=cwd))
    for mistake in app.mistakes:
        if mistake.key.startswith("oidc."):
            await app.aclose()
            raise mistake  # because the gateway might admit more users than intended
    report_problems(app, say)
    export_spans(app.config.environment, __version__)
    gateway = app.gateway()
    limits = app.config.gateway
    readiness = _Readiness(gateway, limits.connect_timeout_seconds)
    front = gateway.http()
    door = app.hooks()
    desk = desk_of(lambda: app, partial(_servers, gateway), lambda: server.is_draining)
    routes: list[BaseRoute] = [
        Route(PATH, front),
        *TeamDoor(team_access(app)).routes(),
        *hook_routes(door.answer),
        *dashboard_routes(desk),
        *_health(app, gateway, lambda: "ending" if server.is_draining else readiness.reason()),
    ]
    home = app.config.home
    server = http_server(http_app(routes, _admission(app), [host, *limits.hosts]))
    work = BackgroundTasks("HTTP server")

    def drain() -> None:
        draining = server.drain(
            front.end_streams,
            # Without a team's database there is no other gateway for the clients to go to.
            notice_seconds=NOTICE_SECONDS if app.postgres else 0.0,
        )
        work.start(draining)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, setattr, server, "should_exit", True)
    async with housekeeping(app, gateway):
        try:
            with listen(host, port) as listening:
                loop.add_signal_handler(signal.SIGTERM, drain)
                host, port = listening.getsockname()[:2]
                LOG.info("serving on %s port %d", host, port)
                say(
                    f"upwell: serving on {url_of(host, port)};"
                    f" clients authenticate with the token in"
                    f" {home.token_file}"
                )
                if not is_loopback(host):
                    say("upwell: other machines can reach this address unencrypted; add TLS")
                async with gateway.running():
                    await server.serve(sockets=[listening])
        finally:
            await work.aclose()
            await front.aclose()
            await door.aclose()


def _admission(app: App) -> Admission:
    home = app.config.home
    tokens = Tokens(token_of(home.token_file), home.tokens_file)
    oidc = open_oidc(app.config.oidc)
    return Admission(
        tokens.principal_of,
        oidc.verify if oidc else None,
        denied=Denials(app.audit.denied, app.audit.stranger),
    )


def _servers(gateway: Gateway) -> list[dict[str, str]]:
    return [
        {
            "name": upstream.name,
            "state": str(upstream.state),
            "trouble": upstream.failure.message
            if upstream.failure and upstream.state is ServerState.FAILED
            else "",
        }
        for upstream in gateway.upstreams
    ]


class _Readiness:
    """The gateway becomes ready when every server has started or failed, or after `seconds` at the
    latest. It stays ready while a failed server restarts, so that one broken server does not make
    the others unavailable.
    """

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self._gateway = gateway
        self._until = time.monotonic() + seconds
        self._is_ready = False

    def reason(self) -> str:
        upstreams = self._gateway.upstreams
        starting = [
            upstream.name for upstream in upstreams if upstream.state is ServerState.STARTING
        ]
        self._is_ready = self._is_ready or not starting or time.monotonic() >= self._until
        return "" if self._is_ready else f"starting: {', '.join(starting)}"


def _health(app: App, gateway: Gateway, unready: Callable[[], str]) -> list[BaseRoute]:
    def state() -> Mapping[str, Any]:
        return {"version": __version__, "servers": len(gateway.upstreams)}

    async def metrics() -> Iterable[Metric]:
        return gateway_metrics(app, gateway)

    return health_routes(state, metrics, unready)
