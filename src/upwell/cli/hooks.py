"""The commands `hook install|uninstall|export|hosts|capture` and `daemon start|stop|status|run`.
The command that the hooks themselves run is in `hook/client.py`."""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, raw, say, say_json, table
from upwell.cli.plans import masked_diff
from upwell.ground.errors import UpwellError, UsageError

if TYPE_CHECKING:
    from upwell.config import Config
    from upwell.hosts.install import FilePlan, Installer
    from upwell.hosts.installation import HttpAddress, Installation

hook = Group(
    "Connect upwell to agents' own events. `upwell hook HOST [EVENT]` answers one event "
    "from stdin on stdout.",
)
HostName = Annotated[str, Argument(metavar="HOST", help="`upwell hook hosts` lists them.")]
Apply = Annotated[bool, Option("--apply", help="Write the change instead of only showing it.")]


@hook.command("install")
def install(
    host: HostName,
    apply: Apply = False,
    http: Annotated[
        bool,
        Option(
            "--http",
            help="For Claude Code and Copilot: after a tool call, call the daemon over HTTP.",
        ),
    ] = False,
) -> None:
    """Add upwell's hooks to an agent's configuration. Shows the change; --apply writes it."""
    from upwell.config import load
    from upwell.hook import control
    from upwell.hosts import host_named

    known, home = host_named(host), load().home.prepare()
    installation = hook_installation(http=http, host=host, guards=has_guards())
    installer = installer_of(installation)
    plan = installer.installing(host)
    if not plan.changes:
        say(f"{plan.path} already has the hooks")
        return
    if apply:
        control.write_launchers(home)
    _show(installer, plan, apply, secret=installation.http.token if installation.http else "")
    if not apply:
        return
    if plan.next_step:
        say(f"next: {plan.next_step}")
    if http:
        setup = known.hooks.http_setup.format(token_file=shlex.quote(str(home.token_file)))
        say(f"and: {setup} in the agent's environment")


@hook.command("uninstall")
def uninstall(host: HostName, apply: Apply = False) -> None:
    """Remove upwell's hooks from an agent's configuration. Everything else stays."""
    installer = installer_of(hook_installation())
    plan = installer.uninstalling(host)
    if not plan.changes:
        say(f"{plan.path} has no upwell hooks")
        return
    _show(installer, plan, apply)


@hook.command("export")
def export(host: HostName, apply: Apply = False) -> None:
    """Print the instructions for an agent without hooks. --apply writes them into this folder."""
    from upwell.hosts import host_named
    from upwell.hosts.install import exported, shown, write

    files = exported(host_named(host))
    if not apply:
        raw(shown(files))
        return
    for path in write(files, Path(os.getcwd())):
        say(f"wrote {path}")


@hook.command("hosts")
def hosts(as_json: Json = False) -> None:
    """List the supported agents. Shows whether each is installed, and whether it has the hooks."""
    from upwell.hosts import HOSTS

    installer = installer_of(hook_installation())
    present, installed = installer.present(), installer.installed()
    rows = [
        {
            "host": name,
            "present": name in present,
            "installed": name in installed,
            "file": str(installer.path_of(name)),
        }
        for name in HOSTS
    ]
    if as_json:
        say_json({"hosts": rows})
    else:
        table(("host", "present", "installed", "file"), rows, "No hosts.")


@hook.command("capture")
def capture(state: Annotated[str, Argument(metavar="on|off")]) -> None:
    """Learn from each turn when it ends. Off by default.

    upwell then records where files and symbols are. It proposes the standing rules that you gave,
    and commands that worked after others had failed.
    """
    from upwell.setup.config_file import set_setting

    if state not in ("on", "off"):
        raise UsageError(f"{state[:20]!r} is not a state", hint="give on or off")
    path = set_setting("hook", "capture", state == "on")
    say(f"capture is {state} ({path}); `upwell inbox` lists the proposals")


def _show(installer: "Installer", plan: "FilePlan", apply: bool, secret: str = "") -> None:
    shown = masked_diff(plan)
    raw(shown.replace(secret, "***") if secret else shown)
    if not apply:
        note("upwell: nothing was written; add --apply to write it")
        return
    if installer.damage:
        note(f"upwell: {installer.damage}")
    backup = installer.apply(plan)
    say(f"wrote {plan.path}" if plan.after is not None else f"removed {plan.path}")
    if backup:
        say(f"backup: {backup}")


def installer_of(installation: "Installation") -> "Installer":
    """The installer for every agent's hooks."""
    from upwell.config import load
    from upwell.hosts import HOSTS
    from upwell.hosts.install import Installer

    files = {host.name: host.hooks for host in HOSTS.values()}
    return Installer(installation, load().home.prepare().hooks_file, files)


def has_guards() -> bool:
    """True if the user has a guard, which is a rule that blocks matching calls. If the memories
    cannot be read, this is False."""
    from upwell.cli.session import with_store
    from upwell.ground.errors import StoreError
    from upwell.ground.types.memory import Scope
    from upwell.surface.rules import MAX_GUARDS, is_guard

    try:
        rules = with_store(lambda app: app.memory.store.pinned(Scope(), limit=MAX_GUARDS))
    except StoreError:
        return False
    return any(map(is_guard, rules))


def hosts_without_guard_hooks() -> list[str]:
    """The agents that have some of upwell's hooks, but not the hook before tool calls."""
    from upwell.hosts import HOSTS

    installer = installer_of(hook_installation())
    return [
        agent
        for agent in installer.installed()
        if (events := HOSTS[agent].hooks.guard_matchers)
        and not any(HOSTS[agent].hooks.command(installer.text_of(agent), event) for event in events)
    ]


def hook_installation(
    *, http: bool = False, host: str = "", guards: bool = False
) -> "Installation":
    """The settings for installing hooks. With `http`, the hooks of `host` are HTTP requests. With
    `guards`, the hook before tool calls, which guards need, is also installed.

    Raises:
        UsageError: the host has no HTTP hooks, or no port is configured.
    """
    from upwell.config import load
    from upwell.ground.files import usual_home
    from upwell.hook.control import refresh
    from upwell.hook.place import DaemonPlace
    from upwell.hosts.installation import Installation

    config = load()
    return Installation(
        user_folder=Path.home(),
        environment=config.environment,
        command=(str(refresh(config.home.prepare())),),
        socket=DaemonPlace(str(config.home.root)).socket,
        guards=guards,
        http=_http_address(host, config) if http else None,
        home="" if config.home.root == usual_home() else str(config.home.root),
    )


def _http_address(host: str, config: "Config") -> "HttpAddress":
    from upwell.hosts import HOSTS, host_named
    from upwell.hosts.installation import HttpAddress
    from upwell.web.tokens import token_of

    if not host_named(host).hooks.http_setup:
        able = ", ".join(known.name for known in HOSTS.values() if known.hooks.http_setup)
        raise UsageError(f"{host} does not support HTTP hooks", hint=f"supported: {able}")
    if not config.hook.port:
        raise UsageError(
            "`hook.port` is not set",
            hint=f"write `port = 47620` (or another free port) under [hook] in "
            f"{config.home.config_file}",
        )
    return HttpAddress(port=config.hook.port, token=token_of(config.home.prepare().token_file))


START_SECONDS = 15.0
daemon = Group("The warm process that answers hooks.")


@daemon.command("run")
def run() -> None:
    """Run the daemon in the foreground. Hooks start it on their own."""
    from upwell.app.daemon import run_or_replace

    if not run_or_replace():
        note("upwell: a daemon is already running for this home")


@daemon.command("start")
def start() -> None:
    """Start the daemon of this home if it is not running yet."""
    import subprocess

    from upwell.hook.control import daemon_at
    from upwell.hook.place import default_home

    running_daemon = daemon_at(default_home())
    if running_daemon is None:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "upwell", "daemon", "run", "--from-hook"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while (running_daemon is None or not running_daemon.answers) and time.monotonic() < deadline:
        time.sleep(0.1)
        running_daemon = daemon_at(default_home())
    if running_daemon is None or not running_daemon.answers:
        raise UpwellError("the daemon did not start", hint="see the log, or run `upwell doctor`")
    say(f"the daemon of {running_daemon.home} is running as process {running_daemon.pid}")


@daemon.command("stop")
def stop(
    everything: Annotated[
        bool, Option("--all", help="Stop the daemons of all your homes.")
    ] = False,
) -> None:
    """Stop the daemon of this home. The next hook starts it again."""
    from upwell.hook.control import daemon_at, end, running
    from upwell.hook.place import default_home

    service = daemon_at(default_home())
    daemons = running() if everything else [service] if service else []
    if not daemons:
        note("upwell: no daemon is running")
    for each in daemons:
        if not end(each):
            raise UpwellError(
                f"the daemon of {each.home} (process {each.pid}) did not stop",
                hint=f"end it with `kill -9 {each.pid}`",
            )
        say(f"stopped the daemon of {each.home} (process {each.pid})")


@daemon.command("status")
def status(as_json: Json = False) -> None:
    """List your daemons, one for each home."""
    from upwell.hook.control import running

    rows: list[dict[str, Any]] = [
        {
            "home": service.home,
            "pid": service.pid,
            "version": service.version,
            "answers": service.answers,
            "up_seconds": max(0, round(time.time() - service.started_at)),
            "events": service.state.get("answered", 0),
            "rss_bytes": service.state.get("rss_bytes", 0),
        }
        for service in running()
    ]
    if as_json:
        say_json({"daemons": rows})
    else:
        columns = ("home", "pid", "version", "answers", "up_seconds", "events", "rss_bytes")
        table(columns, rows, "No daemon is running.")
