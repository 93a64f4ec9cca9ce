"""The metrics of a running gateway: its work, its servers, the team's database, and the process."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from upwell.app.wiring import App
from upwell.gateway.server import Gateway
from upwell.gateway.upstreams.supervisor import ServerState
from upwell.ground.meters import HISTOGRAMS, METERS
from upwell.web.metrics import Metric, counted, gauge, of_histogram, of_meter

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
    return [
        gauge("process_resident_memory_bytes", "Resident memory", rss_bytes()),
        counted("process_cpu_seconds_total", "Processor time of this process", time.process_time()),
        gauge("process_open_fds", "Open files and connections", _open_files()),
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
    use = app.postgres.use
    return [
        gauge(
            "upwell_database_up",
            "0 while there is no connection to the team's database",
            float(not use.is_lost),
        ),
        gauge(
            "upwell_database_connections",
            "Open connections to the team's database",
            use.connections,
        ),
        gauge(
            "upwell_database_connections_busy",
            "Connections to the team's database in use",
            use.busy,
        ),
        gauge(
            "upwell_database_connections_max",
            "Maximum number of connections to the team's database",
            use.most,
        ),
        gauge(
            "upwell_database_waiting",
            "Requests waiting for a connection to the team's database",
            use.waiting,
        ),
    ]


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
