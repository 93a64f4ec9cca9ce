"""init · eject; and `add --from-clients`: the servers that agents have configured."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from upwell.cli.output import Json, note, raw, say, say_json

if TYPE_CHECKING:
    from upwell.hosts.install import Plan
    from upwell.setup.takeover import Clients, Takeover

Apply = Annotated[bool, typer.Option("--apply", help="Write it; else it is only shown.")]
Project = Annotated[
    bool, typer.Option("--project", help="Also what this folder configures for agents.")
]
NO_AGENT = "no agent that upwell knows is here; any other one takes the command `upwell serve`"


def register(app: typer.Typer) -> None:
    app.command()(init)
    app.command()(eject)


def init(apply: Apply = False, project: Project = False, as_json: Json = False) -> None:
    """Put upwell in front of the MCP servers that agents here have. They move into config.toml,
    all of them for every agent, and each agent gets one server, upwell. Shows the change; --apply
    writes it."""
    found = _clients(project)
    plan = found.taking_over()
    changes = [file for file in plan.files if file.changes]
    if apply:
        found.take(plan)
    if as_json:
        say_json(_as_json(found, plan, changes, apply))
    else:
        _say_servers(plan)
        if not apply:
            _show(found, [plan.config, *changes])
        elif plan.config.changes:
            say(f"wrote {plan.config.path}")
        if not changes and not plan.refused:
            say("nothing to do: every agent here has upwell" if plan.files else NO_AGENT)
        elif changes and not apply:
            note("upwell: nothing was written; --apply writes it")
        if not apply:
            _refuse(plan.refused)
    if apply:
        _write(found, changes, plan.refused, quiet=as_json)
    elif as_json and plan.refused:
        raise typer.Exit(1)


def eject(apply: Apply = False, project: Project = False, as_json: Json = False) -> None:
    """Give the agents their servers back. The old bytes where nobody changed the file since, else
    only our entry is taken out and theirs are put back. Shows the change; --apply writes it."""
    found = _clients(project)
    plans, refused = found.giving_back()
    if as_json:
        files = [{"file": str(p.path), "diff": _diff(found, p)} for p in plans]
        say_json({"applied": apply, "files": files, "refused": refused})
    elif not plans and not refused:
        say("no agent has upwell")
    elif not apply:
        _show(found, plans)
        note("upwell: nothing was written; --apply writes it")
    if apply:
        _write(found, plans, refused, quiet=as_json)
        if plans and not as_json:
            say("config.toml keeps its servers; `upwell remove NAME` takes one out")
    else:
        _refuse(refused)


def add_from_clients(project: bool) -> None:
    """Take the servers over into config.toml, and leave the agents' files as they are."""
    found = _clients(project)
    plan = found.taking_over(moving=False)
    found.take(plan)
    _say_servers(plan)
    if plan.taken:
        say(f"wrote {plan.config.path}; the agents' own files are as they were")
    else:
        say("nothing to take over")
    _refuse(plan.refused)


def _say_servers(plan: "Takeover") -> None:
    for server in plan.servers:
        if server.left:
            say(f"{server.client}: {server.original} stays: {server.left}")
        else:
            known = ", which upwell has already" if server.known else ""
            say(f"{server.client}: {server.original} → {server.name}{known}")


def _show(found: "Clients", plans: "list[Plan]") -> None:
    for plan in plans:
        if plan.changes:
            raw(_diff(found, plan))


def _diff(found: "Clients", plan: "Plan") -> str:
    from upwell.ground.redact import redact
    from upwell.ground.settings import masked

    shown = found.diff(plan, lambda key, value: bool(masked(key, value) != value))
    return redact(shown, keep_lines=True)[0]


def _write(found: "Clients", plans: "list[Plan]", refused: dict[str, str], quiet: bool) -> None:
    """Write what can be written; what cannot is named, and the others go on."""
    from upwell.ground.errors import UpwellError

    refused = dict(refused)
    for plan in plans:
        try:
            backup = found.apply(plan)
        except UpwellError as error:
            refused[str(plan.path)] = str(error)
            continue
        if not quiet:
            say(f"wrote {plan.path}" if plan.after is not None else f"removed {plan.path}")
            if backup:
                say(f"what it was is in {backup}")
    _refuse(refused)


def _refuse(refused: dict[str, str]) -> None:
    for path, why in refused.items():
        note(f"upwell: {path}: {why}")
    if refused:
        raise typer.Exit(1)


def _as_json(
    found: "Clients", plan: "Takeover", changes: "list[Plan]", applied: bool
) -> dict[str, Any]:
    config = [plan.config] if plan.config.changes else []
    return {
        "applied": applied,
        "servers": [
            {
                "client": server.client,
                "original": server.original,
                "name": server.name,
                "known": server.known,
                "left": server.left,
            }
            for server in plan.servers
        ],
        "files": [{"file": str(p.path), "diff": _diff(found, p)} for p in (*config, *changes)],
        "refused": plan.refused,
    }


def _clients(project: bool) -> "Clients":
    from upwell.config import load
    from upwell.hosts.base import Where
    from upwell.setup.takeover import Clients

    config = load()
    beside = Path(sys.executable).with_name("upwell")
    program = (str(beside),) if beside.is_file() else (sys.executable, "-m", "upwell")
    where = Where(folder=Path.home(), environment=config.environment, command=(*program, "serve"))
    folder = Path(os.getcwd()).resolve() if project else None
    return Clients(where, config.home.prepare(), folder)
