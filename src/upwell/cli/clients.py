"""The commands `init`, `eject` and `add --from-clients`, for the servers in agents' settings."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from click.exceptions import Exit

from upwell.cli.command import Option
from upwell.cli.output import Json, note, raw, say, say_json
from upwell.ground.text.format import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from upwell.hosts.install import Plan
    from upwell.setup.takeover import Clients, OutdatedRule, Takeover
    from upwell.setup.wrapping import WrappingPlan

Apply = Annotated[bool, Option("--apply", help="Write the change instead of only showing it.")]
Project = Annotated[bool, Option("--project", help="Include agent settings in this folder.")]
Wrap = Annotated[
    bool, Option("--wrap", help="Wrap each server in its place; none moves to config.toml.")
]
NO_AGENT = "no known agent found; configure any other agent to run `upwell serve`"


def init(
    apply: Apply = False, project: Project = False, wrap: Wrap = False, as_json: Json = False
) -> None:
    """Put upwell in front of every agent's MCP servers. The servers of all agents on this machine
    move to config.toml, and each agent gets one server: upwell. With --wrap, every server keeps its
    place, its name and its tools, and only its command changes. Shows the change; --apply writes
    it."""
    clients = clients_of_user(project)
    say_damage([clients.damage])
    (_wrap if wrap else _move)(clients, apply=apply, as_json=as_json)


def _move(clients: "Clients", *, apply: bool, as_json: bool) -> None:
    plan = clients.taking_over()
    changes = [file for file in plan.files if file.changes]
    if apply:
        clients.take(plan.config)
    if as_json:
        say_json(_as_json(plan, changes, apply))
    else:
        say_servers(plan)
        if not apply:
            _show([plan.config, *changes])
        elif plan.config.changes:
            say(f"wrote {plan.config.path}")
        if not changes and not plan.refused:
            say("nothing to do: every agent already uses upwell" if plan.files else NO_AGENT)
        elif changes and not apply:
            note("upwell: nothing was written; add --apply to write it")
        if not apply:
            _refuse(plan.refused)
    if apply:
        _refuse(plan.refused | _write(clients.apply, changes, quiet=as_json))
    elif as_json and plan.refused:
        raise Exit(1)


def _wrap(clients: "Clients", *, apply: bool, as_json: bool) -> None:
    plan = clients.wrapping.wrapping()
    changes = [file for file in plan.files if file.changes]
    if as_json:
        say_json(_wrapping_as_json(plan, changes, apply))
    else:
        say_places(plan)
        if not changes and not plan.refused:
            say("nothing to do: no other server can be wrapped" if plan.places else NO_AGENT)
        elif changes and not apply:
            _show(changes)
            note("upwell: nothing was written; add --apply to write it")
    failed: dict[str, str] = {}
    if apply and changes:
        from upwell.config import load
        from upwell.hook import launcher

        launcher.write(load().home)
        failed = _write(clients.wrapping.apply, changes, quiet=as_json)
    _refuse(plan.refused | failed)


def eject(apply: Apply = False, project: Project = False, as_json: Json = False) -> None:
    """Give the agents their servers back, and unwrap those that were wrapped. A file that has not
    changed since `init` is restored byte for byte; in any other file, only upwell's entry and the
    wrapped commands are replaced. Shows the change; --apply writes it.
    """
    clients = clients_of_user(project)
    back, unwrapping = clients.giving_back(), clients.wrapping.unwrapping()
    unwrapped = [plan for plan in unwrapping.files if plan.changes]
    plans, refused = [*back.plans, *unwrapped], back.refused | unwrapping.refused
    say_damage([clients.damage])
    say_improvised(plans)
    if as_json:
        files = [{"file": str(p.path), "diff": masked_diff(p)} for p in plans]
        say_json({"applied": apply, "files": files, "refused": refused})
    elif not plans and not refused:
        say("no agent uses upwell")
    elif not apply:
        _show(plans)
        note("upwell: nothing was written; add --apply to write it")
    if apply:
        for settled in back.settled:
            clients.apply(settled)
        failed = _write(clients.apply, back.plans, quiet=as_json)
        # Planned again, because a file may have held upwell and wrapped servers.
        unwrapping = clients.wrapping.unwrapping()
        failed |= _write(clients.wrapping.apply, unwrapping.files, quiet=as_json)
        if back.plans and not as_json:
            say("the servers stay in config.toml; `upwell remove NAME` removes one")
        refused = refused | failed
    _refuse(refused)


def say_damage(faults: "Iterable[str]") -> None:
    """Name damaged records."""
    for fault in filter(None, faults):
        note(f"upwell: {fault}")


def say_improvised(plans: "Iterable[Plan]") -> None:
    """Say what is used in place of a lost record."""
    for plan in plans:
        if plan.source:
            note(
                f"upwell: the record of the servers of {plan.path} is lost; they are restored from "
                f"{plan.source}; a copy of the file as it is now stays beside it"
            )


def add_from_clients(project: bool) -> None:
    """Copy the agents' servers to config.toml. The agents' files stay unchanged."""
    clients = clients_of_user(project)
    plan = clients.taking_over(moving=False)
    clients.take(plan.config)
    say_servers(plan)
    if plan.taken:
        say(f"wrote {plan.config.path}; the agents' own files are unchanged")
    else:
        say("no servers to add")
    _refuse(plan.refused)


def say_servers(plan: "Takeover") -> None:
    """Print where each server goes."""
    if any(server.proxy for server in plan.servers):
        note("upwell: `upwell import --from memtomem-stm` also takes over the proxy's settings")
    for server in plan.servers:
        if server.left:
            say(f"{server.client}: {server.original} stays: {server.left}")
        else:
            known = " (already in upwell)" if server.known else ""
            say(f"{server.client}: {server.original} → {server.name}{known}")
    _say_outdated(plan.outdated)


def say_places(plan: "WrappingPlan") -> None:
    """Print which servers are wrapped, and why the others are not."""
    from upwell.hosts.wrapped import BEHIND_UPWELL

    for place in plan.places:
        left = f"stays as it is: {place.left}" if place.left else "wrapped in its place"
        say(f"{place.client}: {place.name} → {left}")
    behind = list(dict.fromkeys(p.client for p in plan.places if p.left == BEHIND_UPWELL))
    if behind:
        note(
            f"upwell: servers of {', '.join(behind)} are behind upwell; `upwell eject --apply` "
            "gives them back, and they can then be wrapped"
        )


def _say_outdated(outdated: "list[OutdatedRule]") -> None:
    if not outdated:
        return
    rules = counted(len(outdated), "permission rule")
    note(
        f"upwell: {rules} of your agents will match nothing, because these tools get new names. "
        "upwell does not change your rules: add the new ones yourself"
    )
    for found in outdated:
        rule = found.rule
        new = found.renamed if rule.tool else f"{found.renamed}TOOL, for each tool"
        note(f"  {found.host}: {rule.action} {rule.pattern} → {new} ({rule.file})")


def _show(plans: "list[Plan]") -> None:
    for plan in plans:
        if plan.changes:
            raw(masked_diff(plan))


def masked_diff(plan: "Plan") -> str:
    """The diff of a plan without secrets."""
    from msgspec.structs import replace

    from upwell.ground.secrets.redact import redact
    from upwell.ground.settings import masked
    from upwell.hosts.edits import JSON, TOML, Format

    formats: dict[str, Format] = {".json": JSON, ".jsonc": JSON, ".toml": TOML}

    def shown(text: str | None) -> str | None:
        format = formats.get(plan.path.suffix)
        if text is None or format is None:
            return text
        return format.shown(text, lambda key, value: bool(masked(key, value) != value))

    diff = replace(plan, before=shown(plan.before), after=shown(plan.after)).diff
    return redact(diff, keep_lines=True)[0]


def _write(write: "Callable[[Plan], str]", plans: "list[Plan]", *, quiet: bool) -> dict[str, str]:
    """Carry out the plans. Returns the reason for each file that could not be written."""
    from upwell.ground.errors import UpwellError

    refused: dict[str, str] = {}
    for plan in plans:
        try:
            backup = write(plan)
        except UpwellError as error:
            refused[str(plan.path)] = str(error)
            continue
        if plan.changes and not quiet:
            say(f"wrote {plan.path}" if plan.after is not None else f"removed {plan.path}")
            if backup:
                say(f"backup: {backup}")
    return refused


def _refuse(refused: dict[str, str]) -> None:
    for path, why in refused.items():
        note(f"upwell: {path}: {why}")
    if refused:
        raise Exit(1)


def _as_json(plan: "Takeover", changes: "list[Plan]", applied: bool) -> dict[str, Any]:
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
        "files": [{"file": str(p.path), "diff": masked_diff(p)} for p in (*config, *changes)],
        "refused": plan.refused,
        "outdated_rules": [
            {
                "host": found.host,
                "file": str(found.rule.file),
                "action": found.rule.action,
                "rule": found.rule.pattern,
                "renamed": found.renamed,
            }
            for found in plan.outdated
        ],
    }


def _wrapping_as_json(plan: "WrappingPlan", changes: "list[Plan]", applied: bool) -> dict[str, Any]:
    return {
        "applied": applied,
        "servers": [
            {"client": place.client, "name": place.name, "left": place.left}
            for place in plan.places
        ],
        "files": [{"file": str(p.path), "diff": masked_diff(p)} for p in changes],
        "refused": plan.refused,
    }


def clients_of_user(project: bool) -> "Clients":
    """The agents on this machine; with `project`, also those configured in this folder."""
    from upwell.config import load
    from upwell.hosts.installation import Installation
    from upwell.setup.takeover import Clients

    config = load()
    script = Path(sys.executable).with_name("upwell")
    program = (str(script),) if script.is_file() else (sys.executable, "-P", "-m", "upwell")
    installation = Installation(
        user_folder=Path.home(), environment=config.environment, command=(*program, "serve")
    )
    folder = Path(os.getcwd()).resolve()
    home = config.home.prepare()
    return Clients(
        installation,
        home,
        folder if project else None,
        folder=folder,
        leave=config.gateway.leave,
    )
