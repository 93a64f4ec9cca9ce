"""`upwell doctor`: tries out every part of upwell, and reports whether it works."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from upwell import __version__
from upwell.app.running import config_mistakes
from upwell.app.store import Settings, damage
from upwell.app.wiring import App, build, connecting
from upwell.config import Config
from upwell.gateway.options import Auth, ServerOptions
from upwell.gateway.upstreams.supervisor import probe
from upwell.ground.clock import SYSTEM_CLOCK, Deadline
from upwell.ground.context_windows import unknown_model
from upwell.ground.errors import ConfigError, RecallError, StoreError, UpwellError
from upwell.ground.files import Home
from upwell.ground.text.words import counted
from upwell.ground.types.memory import Query
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Recall
from upwell.wire.logins import Logins

if TYPE_CHECKING:
    from upwell.hosts.install import Installer
    from upwell.hosts.installation import Installation
    from upwell.hosts.plugins import Plugin

SHOWN_PROBLEMS = 3
TRIAL_SECONDS = 2.0
"""The time limit for one search, and for one run of a hook."""
TRIAL = Query(texts=("upwell doctor",), limit=1)


async def examine(cwd: str | None = None) -> AsyncIterator[tuple[str, Ping]]:
    """Yield the name and the health of each part, without waiting for all checks."""
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
        return  # `config.toml` cannot be read at all, as the row `config 1` has reported.
    try:
        async for part, ping in _parts(app):
            yield part, ping
        for part, report in await asyncio.to_thread(_files, config, cwd):
            yield part, report
    finally:
        await app.aclose()
    if remark := unknown_model(config.agent):
        yield "model", Ping(ok=True, detail=remark)
    async for part, ping in _servers(config):
        yield part, ping


async def _parts(app: App) -> AsyncIterator[tuple[str, Ping]]:
    """Run all checks at the same time, and yield their results in the order of the checks."""
    places = dict(app.places_of_recall())
    checks = {**app.checks(), "documents": _documents(app)}
    tasks = {
        part: asyncio.create_task(_tried(check, places.get(part))) for part, check in checks.items()
    }
    try:
        for part, task in tasks.items():
            if ping := await task:
                yield part, ping
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _tried(check: Awaitable[Ping | None], place: Recall | None) -> Ping | None:
    ping = await check
    if place is None or ping is None or not ping.ok:
        return ping
    began = SYSTEM_CLOCK.monotonic()
    try:
        async with asyncio.timeout(TRIAL_SECONDS):
            await place.search(TRIAL, Deadline.after(TRIAL_SECONDS))
    except TimeoutError:
        return Ping(ok=False, detail=f"{ping.detail}; no answer to a search in {TRIAL_SECONDS:g} s")
    except RecallError as error:
        return Ping(ok=False, detail=f"{ping.detail}; {error.message}", hint=error.hint)
    took_ms = (SYSTEM_CLOCK.monotonic() - began) * 1000
    return replace(ping, detail=f"{ping.detail}; searched in {took_ms:.0f} ms")


def _files(config: Config, cwd: str | None) -> list[tuple[str, Ping]]:
    reports = {"transcripts": _transcripts(cwd), "damage": damage(config.home)}
    found = [(part, report) for part, report in reports.items() if report]
    return [*found, *_wrapped(config), *_hooks(config), *_plugins(config)]


def _transcripts(cwd: str | None) -> Ping | None:
    """Whether the newest transcript of each agent was understood. None without transcripts."""
    from upwell.replay.transcripts.census import newest_of_user

    census = newest_of_user(Path.home(), Path(cwd or Path.home()))
    if misread := "; ".join(census.lines()):
        hint = "update upwell; what it does not understand, it cannot learn from"
        return Ping(ok=False, detail=misread, hint=hint)
    read = ", ".join(census.versions())
    return Ping(ok=True, detail=f"read: {read}") if read else None


async def _servers(config: Config) -> AsyncIterator[tuple[str, Ping]]:
    async def examined(server: ServerOptions) -> tuple[str, Ping]:
        state = await probe(server, config.gateway, connecting(config))
        if state.ok and server.auth is Auth.OAUTH:
            login = Logins(config.home.logins_file).described(server.name, server.url)
            state = replace(state, detail=f"{state.detail}; login: {login}")
        return f"server {server.name}", state

    probes = [examined(server) for server in config.servers if server.enabled]
    for done in asyncio.as_completed(probes):
        yield await done


def lost_hooks(config: Config) -> set[str]:
    """The agents whose settings no longer contain the hooks that upwell installed there."""
    installer, _, hosts = _installed(config)

    def is_lost(host: str) -> bool:
        try:
            return "upwell" not in installer.text_of(host)
        except UpwellError:
            return True

    return set(filter(is_lost, hosts))


def _installed(config: Config) -> "tuple[Installer, Installation, list[str]]":
    """The installer, the user's files, and the agents in which upwell has installed hooks."""
    from upwell.hosts import HOSTS
    from upwell.hosts.install import Installer, installed_entries
    from upwell.hosts.installation import Installation

    hosts = [host for host in installed_entries(config.home.hooks_file) if host in HOSTS]
    own = Installation.of_user(config.environment)
    hooks = {name: HOSTS[name].hooks for name in hosts}
    return Installer(own, config.home.hooks_file, hooks), own, hosts


def _hooks(config: Config) -> list[tuple[str, Ping]]:
    """Report the health of the daemon and of each agent's hook. Each hook is run once."""
    from upwell.hook.control import refresh_installed
    from upwell.hook.place import folder_of_user, is_private

    home, folder = config.home, folder_of_user()
    if os.path.lexists(folder) and not is_private(folder):
        detail = f"{folder} is not private: it belongs to, or is open to, another user"
        hint = "remove it, or run `chmod 700` on it: the daemon's socket is there"
        return [("hooks", Ping(ok=False, detail=detail, hint=hint))]
    refresh_installed(home)
    installer, own, hosts = _installed(config)
    with ThreadPoolExecutor(max_workers=2) as pool:
        proofs = pool.map(lambda host: _hook(installer, own, host), hosts)
        rows = [(f"hook {host}", ping) for host, ping in zip(hosts, proofs, strict=True)]
    return [("hooks", _daemon(home, hosts)), *rows]


def _plugins(config: Config) -> list[tuple[str, Ping]]:
    from upwell.hosts import HOSTS
    from upwell.hosts.installation import Installation
    from upwell.hosts.plugins import plugin_of

    own = Installation.of_user(config.environment)
    found = {host: plugin_of(host, own) for host in HOSTS}
    return [(f"plugin {host}", _plugin(plugin)) for host, plugin in found.items() if plugin]


def _plugin(plugin: "Plugin") -> Ping:
    if not plugin.version:
        detail = f"{plugin.folder}: its files are gone"
        return Ping(ok=False, detail=detail, hint="install the plugin again with the agent")
    detail = f"{plugin.folder}: version {plugin.version}"
    if plugin.version == __version__:
        return Ping(ok=True, detail=detail)
    hint = "update the older of the two: the plugin with the agent, upwell as you installed it"
    return Ping(ok=False, detail=f"{detail}, but upwell is version {__version__}", hint=hint)


def _wrapped(config: Config) -> list[tuple[str, Ping]]:
    """Report the agents' files whose servers start with this home's launcher, which is written
    again if it is gone: without it, none of them starts."""
    from upwell.hook.control import refresh
    from upwell.hosts.installation import Installation
    from upwell.setup.takeover import Clients

    home = config.home
    own = Installation(user_folder=Path.home(), environment=config.environment, command=("upwell",))
    launcher = home.server_launcher
    files = [
        str(plan.path)
        for plan in Clients(own, home).wrapping.unwrapping().files
        if plan.changes and str(launcher) in (plan.before or "")
    ]
    if not files:
        return []
    was_there = launcher.is_file()
    refresh(home)
    detail = f"wrapped in {', '.join(files)}"
    if launcher.is_file():
        note = "" if was_there else f"; {launcher} was gone and is there again: restart the agents"
        return [("servers", Ping(ok=True, detail=detail + note))]
    hint = "make upwell's home writable, or run `upwell setup --undo`"
    return [("servers", Ping(ok=False, detail=f"{detail}; {launcher} is gone", hint=hint))]


def _hook(installer: "Installer", own: "Installation", host: str) -> Ping:
    """Run the hook from an agent's settings file on an event that upwell never answers, and look
    for a setting that prevents the agent from running the hook.
    """
    from upwell.hosts import HOSTS
    from upwell.setup.proof import run_once

    try:
        fault = run_once(HOSTS[host], installer.text_of(host), own.environment, TRIAL_SECONDS)
    except UpwellError as error:
        fault = error.message
    hint = f"run `upwell hook install {host} --apply`"
    where = str(installer.path_of(host))
    hooks_off = HOSTS[host].hooks_off
    if not fault and hooks_off and (setting := hooks_off(own, Path())):
        detail = f"{where}: the hook works, but {HOSTS[host].title} does not run it: {setting}"
        return Ping(ok=False, detail=detail, hint="change that setting, or use the gateway alone")
    return Ping(ok=not fault, detail=f"{where}: {fault or 'runs'}", hint=hint if fault else "")


def _daemon(home: Home, hosts: Sequence[str]) -> Ping:
    from upwell.hook.control import daemon_at

    installed = f"installed in {', '.join(hosts) or 'no agent'}"
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
    kept = app.kept_folder()
    unreadable += kept.problems() if kept else []
    more = (
        [f"{counted(len(unreadable), 'path')} not read: {'; '.join(unreadable[:SHOWN_PROBLEMS])}"]
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
