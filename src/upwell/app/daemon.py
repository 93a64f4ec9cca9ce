"""The app inside the daemon, and the daemon's HTTP server. When the configuration changes, the app
is replaced."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from upwell import __version__
from upwell.app import shortening
from upwell.app.memory import forget_notes
from upwell.app.running import follow_config
from upwell.app.store import Settings
from upwell.app.turns import has_own_tools
from upwell.app.wiring import App, build
from upwell.config import Config, read_valid
from upwell.ground.background import BackgroundTasks, Receipt
from upwell.ground.errors import UpwellError
from upwell.ground.trace import LOG, export_spans, send_last_spans
from upwell.hook.control import daemon_at, end, refresh_installed
from upwell.hook.daemon import WRAP, AlreadyRunning, Daemon, HookRequest
from upwell.hook.door import HookDoor
from upwell.hook.place import DaemonPlace
from upwell.wrap.asking import TOOLS
from upwell.wrap.door import ToolDoor, WrapDoor

CHORES_SECONDS = 3600.0
IDLE_SECONDS = 1800.0
"""The daemon stops after this time without an event."""
RECORDS_SECONDS = 2.0
"""How long each round of chores reads sessions that ended without a hook's notice."""
FOLDER_SECONDS, FOLDER_SHARE = 2.0, 20
"""The pause between two looks at the folder of memories, and by how many times the duration of a
look it is longer."""
WARM_AFTER_SECONDS = 1.0
"""How long to wait before importing the modules for HTTP and shortening. A hook usually starts the
daemon, and the agent would otherwise wait for these imports.
"""


class Warm:
    """An app that stays loaded, and the doors that answer hooks, wrapped servers and tools with it.
    When `config.toml` changes, all are replaced, unless the file is invalid. Housekeeping, lessons
    and the folder of memories run beside them."""

    def __init__(self, app: App) -> None:
        self._tasks = BackgroundTasks("daemon")
        self._following: set[asyncio.Task[None]] = set()
        self._http: asyncio.Task[None] | None = None
        self._port = 0
        self._earlier_events = 0
        self.app = app
        self.door = self._open_door(app)
        self._wrap_door = _wrap_door_of(app)
        self._tool_door = ToolDoor(
            lambda cwd: self.app.toolbox(cwd=cwd, few=True),
            lambda host, parent, cwd: self.app.session_of(host, parent, cwd),
            lambda host, tokens: self.app.learning.listed(host, tokens),
            lambda host, cwd: has_own_tools(self.app.config, host, cwd),
        )
        self.on_request: Callable[[], None] = lambda: None
        """Called on each hook event and each use of the dashboard over HTTP. The daemon itself sees
        only requests on its socket. Without this call, it would count as idle and stop."""
        self._tasks.start(self._run_housekeeping())
        self._tasks.start(follow_config(app.config, self._adopt))

    async def answer(self, request: HookRequest, body: bytes, receipt: Receipt) -> bytes:
        if request.host == WRAP:
            return await self._wrap_door.answer(request, body, receipt)
        if request.host == TOOLS:
            return await self._tool_door.answer(request, body)
        return await self.door.answer(
            request.host,
            request.name,
            body,
            left_ms=request.left_ms,
            parent=request.parent,
            receipt=receipt,
        )

    async def _adopt(self, _: Config) -> None:
        fresh = await build(Settings(tolerant=True))
        for task in self._following:
            task.cancel()
        await asyncio.wait(self._following)
        old_app, old_door, old_wrap_door = self.app, self.door, self._wrap_door
        self._earlier_events += old_door.outcomes.total()
        self.app, self.door = fresh, self._open_door(fresh)
        self._wrap_door = _wrap_door_of(fresh)
        await old_door.aclose()
        await old_wrap_door.aclose()
        await old_app.aclose()
        await self.serve_http()

    def _open_door(self, app: App) -> HookDoor:
        """Start the tasks that last as long as the app, and receive hook events with it."""
        self._following = {
            self._tasks.start(app.follow_team()),
            self._tasks.start(_follow_folder(app)),
        }
        if not app.config.lessons.model:
            return app.hooks()
        # Imported here, because the transcript readers load slowly.
        from upwell.app.lesson_queue import LessonQueue, Models

        models = Models(app.config)
        queue = LessonQueue(app.lessons(models), models.close)
        self._following.add(self._tasks.start(queue.run()))
        return app.hooks(queue.note)

    async def serve_http(self) -> None:
        """Serve HTTP on the configured port, if there is one."""
        port = self.app.config.hook.port
        if port == self._port:
            return
        if self._http:
            self._http.cancel()
            await asyncio.wait({self._http})
            self._http = None
        self._port = port
        if port:
            self._http = self._tasks.start(_serve_hooks(self, port))

    def state(self) -> Mapping[str, Any]:
        from upwell.app.http import rss_bytes

        return {
            "pid": os.getpid(),
            "answered": self._earlier_events + self.door.outcomes.total(),
            "rss_bytes": rss_bytes(),
        }

    async def aclose(self) -> None:
        await self._tasks.aclose()
        await self.door.aclose()
        await self._wrap_door.aclose()
        await self.app.aclose()

    async def _run_housekeeping(self) -> None:
        await asyncio.sleep(WARM_AFTER_SECONDS)
        await self.serve_http()
        if self.app.config.hook.compress:
            await asyncio.to_thread(shortening.load)
        while True:
            try:
                await self.app.documents.refresh()
                await forget_notes(self.app.notes)
                await self.app.run_housekeeping()
                if self.app.config.hook.capture:
                    await self.app.past_sessions().refresh(seconds=RECORDS_SECONDS)
            except UpwellError as error:
                LOG.warning("housekeeping: %s", error)
            await asyncio.sleep(CHORES_SECONDS)


def _wrap_door_of(app: App) -> WrapDoor:
    read_command = shortening.read_command(app.config.home)
    return WrapDoor(app.pipeline, app.may_shorten, read_command, shortening.load)


async def _follow_folder(app: App) -> None:
    while True:
        began = time.monotonic()
        await app.sync_folder()
        await asyncio.sleep(FOLDER_SECONDS + FOLDER_SHARE * (time.monotonic() - began))


async def run_daemon() -> bool:
    """Run the home's daemon until it is stopped or idle. Returns False if another daemon is running
    already.

    Raises:
        UpwellError: the daemon cannot start.
    """
    app = await build(Settings(tolerant=True))
    config = app.config
    refresh_installed(config.home)
    async with contextlib.aclosing(Warm(app)) as warm:
        export_spans(config.environment, __version__)
        place = DaemonPlace(str(config.home.root))
        daemon = Daemon(place, warm, __version__, IDLE_SECONDS)
        warm.on_request = daemon.touch
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, daemon.stop)
        try:
            await daemon.run()
        except AlreadyRunning:
            return False
        finally:
            await asyncio.to_thread(send_last_spans)
    return True


def run_or_replace() -> bool:
    """Run the daemon, replacing one that no longer answers. Returns False if a running daemon was
    not replaced, usually because it still answers.

    Raises:
        UpwellError: the daemon cannot start.
    """
    if asyncio.run(run_daemon()):
        return True
    daemon = daemon_at(str(read_valid()[0].home.root))
    if daemon is None or daemon.answers:
        return False
    return end(daemon) and asyncio.run(run_daemon())


def main() -> int:
    """Run the daemon that a hook starts, detached from the agent's terminal and open files. Returns
    the exit status."""
    os.chdir("/")
    os.closerange(3, 256)
    try:
        run_or_replace()
    except UpwellError as error:
        LOG.error("the daemon cannot start: %s", error)
        return 1
    return 0


async def _serve_hooks(warm: Warm, port: int) -> None:
    """Serve hooks, the dashboard and metrics over HTTP on loopback. If the port is in use, the
    daemon answers only on its socket.
    """
    from upwell.web.guard import Admission
    from upwell.web.routes import http_app
    from upwell.web.server import http_server, listen
    from upwell.web.tokens import Tokens, token_of

    try:
        home = warm.app.config.home
        tokens = Tokens(token_of(home.token_file), home.tokens_file)
        app = http_app(_routes(warm), Admission(tokens.principal_of))
        server = http_server(app)
        with contextlib.closing(listen("127.0.0.1", port)) as listening:
            await server.serve(sockets=[listening])
    except UpwellError as error:
        LOG.error("hooks over HTTP are not served: %s", error)


def _routes(warm: Warm) -> list[Any]:
    from upwell.app.dashboard.desk import desk_of
    from upwell.app.http import process_metrics, rss_bytes
    from upwell.ground.trace import DECISION_SECONDS, DECISIONS, MEMORIES, TOKENS_SAVED
    from upwell.web.dashboard.routes import dashboard_routes
    from upwell.web.routes import (
        gauge,
        health_routes,
        hook_metric,
        hook_routes,
        of_histogram,
        of_meter,
    )

    def app_now() -> App:
        warm.on_request()
        return warm.app

    async def metrics() -> Iterable[Any]:
        return [
            hook_metric(warm.door.outcomes),
            gauge("upwell_resident_memory_bytes", "Resident memory", rss_bytes()),
            *map(of_meter, (DECISIONS, MEMORIES, TOKENS_SAVED)),
            of_histogram(DECISION_SECONDS),
            *process_metrics(),
        ]

    async def answer(host: str, name: str, body: bytes, *, receipt: Receipt) -> bytes:
        warm.on_request()
        return await warm.door.answer(host, name, body, receipt=receipt)

    return [
        *hook_routes(answer),
        *dashboard_routes(desk_of(app_now)),
        *health_routes(lambda: {"version": __version__}, metrics),
    ]
