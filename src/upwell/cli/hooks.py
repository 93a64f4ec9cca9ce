"""hook install|uninstall|export|hosts. An agent's event itself goes to `hook/client.py`."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upwell.cli.output import Json, note, raw, say, say_json, table
from upwell.ground.errors import UsageError

if TYPE_CHECKING:
    from upwell.config import Config
    from upwell.hosts.base import Http, Where
    from upwell.hosts.install import Hooks, Plan

hook = typer.Typer(
    help="Set up what agents run at their events. `upwell hook HOST [EVENT]` answers one, from "
    "stdin to stdout.",
    no_args_is_help=True,
)
Host = Annotated[str, typer.Argument(metavar="HOST", help="`upwell hook hosts` lists them.")]
Apply = Annotated[bool, typer.Option("--apply", help="Write it; else it is only shown.")]


def register(app: typer.Typer) -> None:
    app.add_typer(hook, name="hook")


@hook.command("install")
def install(
    host: Host,
    apply: Apply = False,
    http: Annotated[
        bool,
        typer.Option("--http", help="Claude Code, Copilot: after a tool by request, no process."),
    ] = False,
) -> None:
    """Put our hooks into an agent's configuration. Shows the change; writes it with --apply."""
    from upwell.config import load
    from upwell.hosts.install import Hooks

    where, home = _where(http_of=host if http else ""), load().home.prepare()
    hooks = Hooks(where, home.hooks_file)
    plan = hooks.installing(host)
    if not plan.changes:
        say(f"{plan.path} has them already")
        return
    _show(hooks, plan, apply, secret=where.http.token if where.http else "")
    if not apply:
        return
    if plan.todo:
        say(f"now: {plan.todo}")
    if http:
        say(_over_http(host, str(home.token_file)))


@hook.command("uninstall")
def uninstall(host: Host, apply: Apply = False) -> None:
    """Take our hooks out of an agent's configuration, and nothing else."""
    hooks = _hooks()
    plan = hooks.uninstalling(host)
    if not plan.changes:
        say(f"{plan.path} has none of ours")
        return
    _show(hooks, plan, apply)


@hook.command("export")
def export(host: Host, apply: Apply = False) -> None:
    """Print the instruction for an agent without hooks, and for Claude Code a plugin folder; with
    --apply they are written below this folder."""
    from upwell.hosts.export import exported, shown, write

    files = exported(host, _where())
    if not apply:
        raw(shown(files))
        return
    for path in write(files, Path(os.getcwd())):
        say(f"wrote {path}")


@hook.command("hosts")
def hosts(as_json: Json = False) -> None:
    """Show the agents we know, which of them are here, and where our hooks are."""
    from upwell.hosts.agents import AGENTS

    hooks = _hooks()
    present, installed = hooks.present(), hooks.installed()
    rows = [
        {
            "host": name,
            "present": name in present,
            "installed": name in installed,
            "file": str(hooks.path_of(name)),
        }
        for name in AGENTS
    ]
    if as_json:
        say_json({"hosts": rows})
    else:
        table(("host", "present", "installed", "file"), rows, "No hosts.")


def _over_http(host: str, token_file: str) -> str:
    """What a host needs that posts to the daemon."""
    from upwell.hosts.agents import OVER_HTTP
    from upwell.hosts.base import TOKEN_VARIABLE

    if OVER_HTTP[host].by_variable:
        return f'and: export {TOKEN_VARIABLE}="$(cat {shlex.quote(token_file)})" in its environment'
    return "and: export COPILOT_HOOK_ALLOW_LOCALHOST=1 in its environment"


def _show(hooks: "Hooks", plan: "Plan", apply: bool, secret: str = "") -> None:
    raw(plan.diff.replace(secret, "***") if secret else plan.diff)
    if not apply:
        note("upwell: nothing was written; --apply writes it")
        return
    backup = hooks.apply(plan)
    say(f"wrote {plan.path}" if plan.after is not None else f"removed {plan.path}")
    if backup:
        say(f"what it was is in {backup}")


def _hooks() -> "Hooks":
    from upwell.config import load
    from upwell.hosts.install import Hooks

    return Hooks(_where(), load().home.prepare().hooks_file)


def _where(http_of: str = "") -> "Where":
    from upwell.config import load
    from upwell.ground.home import usual_home
    from upwell.hook import client
    from upwell.hook.place import Place
    from upwell.hosts.base import Where

    config = load()
    http = _http(http_of, config) if http_of else None
    return Where(
        folder=Path.home(),
        environment=config.environment,
        command=(sys.executable, "-I", "-S", str(Path(client.__file__).resolve())),
        socket=Place(str(config.home.root)).socket,
        http=http,
        home="" if config.home.root == usual_home() else str(config.home.root),
    )


def _http(host: str, config: "Config") -> "Http":
    """Where the daemon takes requests.

    Raises:
        UsageError: this host makes none, or the daemon takes none.
    """
    from upwell.hosts.agents import OVER_HTTP
    from upwell.hosts.base import Http
    from upwell.web.token import token_of

    if host not in OVER_HTTP:
        raise UsageError(
            f"{host[:40]} has no hooks that are HTTP requests", hint=f"only {', '.join(OVER_HTTP)}"
        )
    if not config.hook.port:
        raise UsageError(
            "no port is set for hooks over HTTP",
            hint=f"write `hook.port = 47620` (or another free one) into {config.home.config_file}",
        )
    return Http(port=config.hook.port, token=token_of(config.home.prepare().token_file))
