"""The servers in agents' settings: `upwell add --from-clients`, and what `upwell setup` says of
them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from click.exceptions import Exit

from upwell.cli.output import note, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from upwell.hosts.install import FilePlan
    from upwell.setup.takeover import Clients
    from upwell.setup.wrapping import WrappingPlan

NO_AGENT = "no known agent found; configure any other agent to run `upwell serve`"


def say_damage(faults: "Iterable[str]") -> None:
    """Name damaged records."""
    for fault in filter(None, faults):
        note(f"upwell: {fault}")


def say_improvised(plans: "Iterable[FilePlan]") -> None:
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
    plan = clients.adding()
    clients.take(plan.config)
    for server in plan.servers:
        if server.left:
            say(f"{server.client}: {server.original} is left out: {server.left}")
        else:
            known = " (already in upwell)" if server.known else ""
            say(f"{server.client}: {server.original} → {server.name}{known}")
    if plan.added:
        say(f"wrote {plan.config.path}; the agents' own files are unchanged")
    else:
        say("no servers to add")
    for path, why in plan.refused.items():
        note(f"upwell: {path}: {why}")
    if plan.refused:
        raise Exit(1)


def say_places(plan: "WrappingPlan") -> None:
    """Print which servers are wrapped, and why the others are not."""
    from upwell.hosts.wrapped import BEHIND_UPWELL

    for place in plan.places:
        left = f"stays as it is: {place.left}" if place.left else "wrapped in its place"
        say(f"{place.client}: {place.name} → {left}")
    behind = list(dict.fromkeys(p.client for p in plan.places if p.left == BEHIND_UPWELL))
    if behind:
        note(
            f"upwell: servers of {', '.join(behind)} are behind upwell; `upwell setup --undo "
            "--only servers` gives them back, and they can then be wrapped"
        )


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
    folder = Path(os.getcwd()).resolve() if project else None
    return Clients(installation, config.home.prepare(), folder, leave=config.gateway.leave)
