"""Running an app: the gateway, its worker processes, and commands on a home."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from upwell.app.damage import damage
from upwell.app.files import (
    Files,
    connecting,
    open_originals,
    open_ttl_store,
    private_ttl_store,
    tools_of,
)
from upwell.app.reload import follow_config
from upwell.app.wiring import App, Settings, build
from upwell.config import Config, load, read, read_valid
from upwell.gateway.calls.fit import Cut, Fitter
from upwell.gateway.calls.worker_pool import work
from upwell.gateway.front.handshake import Hello
from upwell.gateway.options import Auth, ServerOptions
from upwell.gateway.server import Gateway
from upwell.gateway.upstreams.fleet import probe
from upwell.ground.embed import embedder_of
from upwell.ground.errors import ConfigError, StoreError, UpwellError
from upwell.ground.home import Home, default_home
from upwell.ground.host_sessions import own_parent
from upwell.ground.pause import Pause
from upwell.ground.sqlite.backup import Backups
from upwell.ground.text.format import counted
from upwell.ground.trace import contained, export_spans, log_to
from upwell.ground.ttl_store import Kind
from upwell.ground.types.rpc import Ping
from upwell.wire.lines import Line, Sink
from upwell.wire.logins import Logins

HOUSEKEEPING_MINUTES = 60
WARM_AFTER_SECONDS = 3.0
SHOWN_PROBLEMS = 3


async def serve(
    lines: AsyncIterator[Line], sink: Sink, cwd: str, hello: Hello, say: Callable[[str], None]
) -> None:
    """Run the gateway for the agent at the other end of `lines` and `sink` until it disconnects.
    `say` receives the mistakes in the configuration."""
    app = await build(Settings(tolerant=True, cwd=cwd))
    tell_mistakes(app, say)
    export_spans(app.config.environment)
    gateway = app.gateway(own_parent())
    async with housekeeping(app, gateway):
        await gateway.serve(lines, sink, hello)


def tell_mistakes(app: App, say: Callable[[str], None]) -> None:
    """Report each setting that a gateway runs without."""
    for mistake in app.mistakes:
        say(f"upwell: running without a setting: {mistake}")


@asynccontextmanager
async def housekeeping(app: App, gateway: Gateway) -> AsyncIterator[None]:
    """Run housekeeping and apply configuration changes while a gateway runs; then close the app."""
    await app.budgets.load_learned()
    await app.forget_notes()
    # Not a TaskGroup: a task that fails must not end the gateway.
    tasks = [
        asyncio.create_task(run_housekeeping(app)),
        asyncio.create_task(follow_config(app, gateway)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await app.aclose()


async def run_housekeeping(app: App) -> None:
    """Adopt learned values every minute, and run housekeeping every hour."""
    await asyncio.sleep(WARM_AFTER_SECONDS)
    with contained("preparing workers and indexes"):
        await app.warm()
    for minute in itertools.count():
        with contained("adopting learned values"):
            await app.budgets.load_learned_if_requested()
            await app.embeddings.catch_up()
            await app.learning.learned.load_learned()
        if minute % HOUSEKEEPING_MINUTES == 0:
            with contained("housekeeping"):
                await app.forget_notes()
                await app.run_housekeeping()
        await asyncio.sleep(60.0)


async def run_worker(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Fit the results that a gateway hands over, in a worker process."""
    config, _ = read_valid()
    log_to(config.home.logs)
    files, private = Files(), private_ttl_store()
    shortened: list[Cut] = []
    fitter = Fitter(
        open_originals(config, open_ttl_store(config, files), private),
        config.compress_for,
        tools=tools_of(config, embedder_of(config.embed)),
        result_tokens=config.result_tokens(),
        shortened=lambda _, cut: shortened.append(cut),
    )
    try:
        await work(source, sink, fitter, private, shortened)
    finally:
        for database in files.databases:
            await database.aclose()


async def back_up() -> list[Path]:
    """`upwell backup`: make today's backup of the memory again. Returns all copies, newest first.

    Raises:
        StoreError: the copy cannot be written.
    """
    app = await build(Settings())
    await app.aclose()
    backups = Backups(app.config.home.memory_db, app.config.home.backups)
    await backups.make()
    return list(backups.list())


async def clear_cached_responses() -> int:
    """`upwell cache clear`. Returns how many responses were removed."""
    files = Files()
    ttl_store = open_ttl_store(load(), files)
    try:
        return await ttl_store.drop(Kind.RESPONSE)
    finally:
        for database in files.databases:
            await database.aclose()


def config_mistakes() -> tuple[Config, list[ConfigError]]:
    """`upwell config check`: the configuration without the invalid settings, and every mistake."""
    from upwell.app.ltm import server_of

    config, mistakes = read()
    try:
        server_of(config.ltm, str(config.home.root))
    except ConfigError as mistake:
        mistakes.append(mistake)
    return config, mistakes


def pause(session: str | None, home: Path | None = None) -> None:
    """`upwell off`."""
    Pause(Home(home or default_home()).prepare().pause_file).begin(session)


def resume(session: str | None, home: Path | None = None) -> None:
    """`upwell on`."""
    Pause(Home(home or default_home()).prepare().pause_file).end(session)


async def decisions(home: Path) -> list[dict[str, Any]]:
    """The journal of decisions of a home, oldest first."""
    app = await build(Settings(home=home, environment={}))
    try:
        return await app.decisions()
    finally:
        await app.aclose()


async def examine(cwd: str | None = None) -> AsyncIterator[tuple[str, Ping]]:
    """`upwell doctor`: the health of each part as soon as it is known, even if one of them keeps
    the others from starting.
    """
    try:
        config, mistakes = config_mistakes()
        config.home.prepare()
    except UpwellError as error:
        yield "home", Ping(ok=False, detail=error.message, hint=error.hint)
        return
    for number, mistake in enumerate(mistakes, 1):
        yield f"config {number}", Ping(ok=False, detail=mistake.message, hint=mistake.hint)
    if not mistakes:
        yield "config", Ping(ok=True, detail=str(config.home.config_file))
    try:
        app = await build(Settings(tolerant=True, cwd=cwd))
    except ConfigError:
        return  # The file cannot be read at all; the first row reports that.
    try:
        for part, ping in (await app.pings()).items():
            if part != "documents":
                yield part, ping
        if report := damage(config.home):
            yield "damage", report
        yield "documents", await _documents(app)
        yield "hooks", await asyncio.to_thread(_hooks, config.home)
    finally:
        await app.aclose()
    async for part, ping in _servers(config):
        yield part, ping


async def _servers(config: Config) -> AsyncIterator[tuple[str, Ping]]:
    """The health of every server, the quickest first."""

    async def examined(server: ServerOptions) -> tuple[str, Ping]:
        state = await probe(server, config.gateway, connecting(config))
        return f"server {server.name}", _with_login(config, server, state)

    probes = [examined(server) for server in config.servers if server.enabled]
    for done in asyncio.as_completed(probes):
        yield await done


def _with_login(config: Config, server: ServerOptions, state: Ping) -> Ping:
    """The health of a server, and whether its login is still valid."""
    if not state.ok or server.auth is not Auth.OAUTH:
        return state
    login = Logins(config.home.logins_file).described(server.name, server.url)
    return replace(state, detail=f"{state.detail}; login: {login}")


def _hooks(home: Home) -> Ping:
    """The agents with hooks, and the health of the daemon behind them."""
    from upwell.hook.control import daemon_at
    from upwell.hook.place import folder_of_user, is_private
    from upwell.hosts.install import installed_entries

    folder = folder_of_user()
    if os.path.lexists(folder) and not is_private(folder):
        return Ping(
            ok=False,
            detail=f"{folder} is not private: it belongs to, or is open to, another user",
            hint="remove it, or run `chmod 700` on it: the daemon's socket is there",
        )
    hosts = ", ".join(installed_entries(home.hooks_file)) or "no agent"
    installed = f"installed in {hosts}"
    daemon = daemon_at(str(home.root))
    if daemon is None:
        return Ping(ok=True, detail=f"{installed}; no daemon is running; the first hook starts one")
    megabytes = int(daemon.state.get("rss_bytes", 0)) / 1e6
    return Ping(
        ok=daemon.answers,
        detail=f"{installed}; the daemon is process {daemon.pid}, {megabytes:.0f} MB"
        if daemon.answers
        else f"the daemon (process {daemon.pid}) does not answer",
        hint="" if daemon.answers else "run `upwell daemon stop`; the next hook starts a new one",
    )


async def _documents(app: App) -> Ping:
    """Refresh the index of documents, and report its contents and unreadable files."""
    try:
        state = await app.documents.refresh()
        sources = await app.imports.all()
    except StoreError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    contents = (
        f"{counted(state.files, 'file')} of {counted(len(sources), 'import')}, "
        f"{counted(state.chunks, 'chunk')}"
    )
    checked = f"checked just now ({state.seconds * 1000:.0f} ms)"
    unreadable = [f"{problem.path}: {problem.why}" for problem in state.problems]
    more = (
        [f"{len(unreadable)} not read: {'; '.join(unreadable[:SHOWN_PROBLEMS])}"]
        if unreadable
        else []
    )
    missing = {problem.path for problem in state.problems} & {source.path for source in sources}
    return Ping(
        ok=not missing,
        detail="; ".join((contents, checked, *more)),
        hint="; ".join(
            f"run `upwell import --remove {path}` if it is gone" for path in sorted(missing)
        ),
    )
