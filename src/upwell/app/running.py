"""Running an app: the gateway, its workshop, and what the command line asks of a home."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from upwell.app.damage import damage
from upwell.app.files import Files, connecting, open_originals, open_shelf, private_shelf, tools_of
from upwell.app.reload import follow_config
from upwell.app.wiring import App, Settings, build
from upwell.config import Config, load
from upwell.gateway.cache import KIND
from upwell.gateway.fit import Cut, Fitter
from upwell.gateway.greeting import Hello
from upwell.gateway.options import Auth, ServerOptions
from upwell.gateway.probe import probe
from upwell.gateway.server import Gateway
from upwell.gateway.workshop import work
from upwell.ground.backup import Backups
from upwell.ground.embed import embedder_of
from upwell.ground.errors import ConfigError, StoreError, UpwellError
from upwell.ground.home import Home, default_home
from upwell.ground.pause import Pause
from upwell.ground.sessions import own_parent
from upwell.ground.text.counts import counted
from upwell.ground.trace import LOG, export_spans, log_to
from upwell.ground.types import Ping
from upwell.wire.lines import Line, Sink
from upwell.wire.logins import Logins

CHORES_MINUTES = 60
WARM_AFTER_SECONDS = 3.0
SHOWN_PROBLEMS = 3


async def serve(lines: AsyncIterator[Line], sink: Sink, cwd: str, hello: Hello) -> None:
    """Run the gateway for the agent at the other end of `lines` and `sink` until it is gone."""
    app = await build(Settings(tolerant=True, cwd=cwd))
    export_spans(app.config.environment)
    gateway = app.gateway(own_parent())
    async with looked_after(app, gateway):
        await gateway.serve(lines, sink, hello)


@asynccontextmanager
async def looked_after(app: App, gateway: Gateway) -> AsyncIterator[None]:
    """While a gateway runs: chores are done and a changed configuration is taken up. Closes the
    app."""
    await app.budgets.take_up()
    await app.forget_notes()
    beside = [
        asyncio.create_task(keep_house(app)),
        asyncio.create_task(follow_config(app, gateway)),
    ]
    try:
        yield
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await app.aclose()


async def keep_house(app: App) -> None:
    """Every minute look whether something is to be learned, every hour do the chores."""
    await asyncio.sleep(WARM_AFTER_SECONDS)
    await app.warm()
    for minute in itertools.count():
        try:
            await app.budgets.take_up_if_asked()
            await app.embeddings.catch_up()
        except StoreError as error:
            LOG.warning("what was learned cannot be looked at: %s", error)
        await app.lessons.learned.take_up()
        if minute % CHORES_MINUTES == 0:
            await app.forget_notes()
            await app.keep_house()
        await asyncio.sleep(60.0)


async def run_workshop(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Fit what a gateway hands over, in a process of its own."""
    config = load()
    log_to(config.home.logs)
    files, private = Files(), private_shelf()
    shortened: list[Cut] = []
    fitter = Fitter(
        open_originals(config, open_shelf(config, files), private),
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
    """`upwell backup`: the copies there are of the memory, newest first, today's made anew.

    Raises:
        StoreError: it cannot be written.
    """
    app = await build(Settings())
    await app.aclose()
    backups = Backups(app.config.home.memory_db, app.config.home.backups)
    await backups.make()
    return list(backups.list())


async def forget_answers() -> int:
    """`upwell cache clear`: how many there were."""
    files = Files()
    shelf = open_shelf(load(), files)
    try:
        return await shelf.drop(KIND)
    finally:
        for database in files.databases:
            await database.aclose()


def pause(session: str | None, home: Path | None = None) -> None:
    """`upwell off`."""
    Pause(Home(home or default_home()).prepare().pause_file).begin(session)


def resume(session: str | None, home: Path | None = None) -> None:
    """`upwell on`."""
    Pause(Home(home or default_home()).prepare().pause_file).end(session)


async def decisions(home: Path) -> list[dict[str, Any]]:
    """The journal of a home, oldest first: what was decided and why."""
    app = await build(Settings(home=home, environment={}))
    try:
        return await app.decisions()
    finally:
        await app.aclose()


async def examine(cwd: str | None = None) -> dict[str, Ping]:
    """What `upwell doctor` shows: every part, even when one keeps the others from starting."""
    try:
        config = load()
        config.home.prepare()
    except UpwellError as error:
        part = "config" if isinstance(error, ConfigError) else "home"
        return {part: Ping(ok=False, detail=error.message, hint=error.hint)}
    app = await build(Settings(tolerant=True, cwd=cwd))
    try:
        parts = {
            "config": Ping(ok=True, detail=str(config.home.config_file)),
            **await app.pings(),
            **({"damage": met} if (met := damage(config.home)) else {}),
            "documents": await _documents(app),
            "hooks": await asyncio.to_thread(_hooks, config.home),
        }
    finally:
        await app.aclose()
    servers = [server for server in config.servers if server.enabled]
    states = await asyncio.gather(
        *(probe(server, config.gateway, connecting(config)) for server in servers)
    )
    named = zip(servers, states, strict=True)
    return {
        **parts,
        **{f"server {server.name}": _with_login(config, server, state) for server, state in named},
    }


def _with_login(config: Config, server: ServerOptions, state: Ping) -> Ping:
    """What is said of a server, and how long the login there holds."""
    if not state.ok or server.auth is not Auth.OAUTH:
        return state
    login = Logins(config.home.logins_file).described(server.name, server.url)
    return replace(state, detail=f"{state.detail}; login: {login}")


def _hooks(home: Home) -> Ping:
    """Which agents were given hooks, and how the daemon behind them is."""
    from upwell.hook.control import daemon_at
    from upwell.hook.place import folder_of_user, is_private
    from upwell.hosts.install import noted

    folder = folder_of_user()
    if os.path.lexists(folder) and not is_private(folder):
        return Ping(
            ok=False,
            detail=f"{folder} is not a private folder of yours",
            hint="remove it, or `chmod 700` it: hooks are answered from there",
        )
    hosts = ", ".join(noted(home.hooks_file)) or "no agent"
    daemon = daemon_at(str(home.root))
    if daemon is None:
        return Ping(ok=True, detail=f"in {hosts}; no daemon runs, the first hook starts one")
    megabytes = int(daemon.state.get("rss_bytes", 0)) / 1e6
    return Ping(
        ok=daemon.answers,
        detail=f"in {hosts}; the daemon is process {daemon.pid}, {megabytes:.0f} MB"
        if daemon.answers
        else f"the daemon (process {daemon.pid}) does not answer",
        hint="" if daemon.answers else "`upwell daemon stop`; the next hook starts another",
    )


async def _documents(app: App) -> Ping:
    """Bring the index up to date, and say what it holds and what could not be read."""
    try:
        state = await app.documents.refresh()
        sources = await app.imports.all()
    except StoreError as error:
        return Ping(ok=False, detail=error.message, hint=error.hint)
    held = (
        f"{counted(state.files, 'file')} of {counted(len(sources), 'import')}, "
        f"{counted(state.chunks, 'chunk')}"
    )
    checked = f"checked now in {state.seconds * 1000:.0f} ms"
    unread = [f"{one.path}: {one.why}" for one in state.problems]
    more = [f"{len(unread)} not read: {'; '.join(unread[:SHOWN_PROBLEMS])}"] if unread else []
    lost = {one.path for one in state.problems} & {source.path for source in sources}
    return Ping(
        ok=not lost,
        detail="; ".join((held, checked, *more)),
        hint="; ".join(f"`upwell import --remove {path}` forgets it" for path in sorted(lost)),
    )
