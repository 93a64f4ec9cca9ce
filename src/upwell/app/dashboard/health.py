"""Health: the findings of doctor, the servers, and the plan of setup."""

import asyncio
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from upwell import __version__
from upwell.app.dashboard.commands import run_command
from upwell.app.doctor import examine, lost_hooks
from upwell.app.wiring import App
from upwell.ground.errors import UsageError
from upwell.ground.types.rpc import Ping
from upwell.hosts import HOSTS
from upwell.hosts.installed import installed_entries
from upwell.web.dashboard.desk import Fields

Servers = Callable[[], Sequence[Mapping[str, str]]]
"""Returns the `name`, `state` and `trouble` of each server behind a gateway."""
SETUP_SECONDS = 300.0
_MENDS = re.compile(r"upwell (hook install [a-z]+ --apply|daemon stop|backup)")
_COMMAND = re.compile(r"`(upwell [^`]{1,200})`")


async def health(app: App, fields: Fields, *, servers: Servers = list) -> Mapping[str, Any]:
    """The state of this home. `doctor` is a separate view, because it takes a while."""
    installed = installed_entries(app.config.home.hooks_file)
    lost = await asyncio.to_thread(lost_hooks, app.config)
    return {
        "version": __version__,
        "home": str(app.config.home.root),
        "paused": app.pause.anybody(),
        "excluded": app.config.projects.exclude,
        "servers": servers(),
        "hosts": [
            {
                "name": name,
                "title": host.title,
                "installed": name in installed and name not in lost,
                "lost": name in lost,
            }
            for name, host in HOSTS.items()
        ],
        "ltm": app.config.ltm.transport is not None or bool(app.config.ltm.url),
    }


async def doctor(app: App, fields: Fields) -> Mapping[str, Any]:
    """The findings of `upwell doctor`, with the command in each hint, if there is one."""
    return {"rows": [_part(name, ping) async for name, ping in examine()]}


async def setup(app: App, fields: Fields) -> Mapping[str, Any]:
    """The changes that `upwell setup` would make on this machine, and a summary."""
    plan = await run_command(app, "setup", "--dry-run", seconds=SETUP_SECONDS)
    changes, _, summary = plan.rpartition("upwell would\n")
    return {"summary": summary, "changes": changes}


async def set_up(app: App, fields: Fields) -> str:
    """Carry out the plan of `setup`."""
    await run_command(app, "setup", "--yes", seconds=SETUP_SECONDS)
    return "Set up. Restart your agents; `upwell setup --undo` reverts all of it."


async def mend(app: App, fields: Fields) -> str:
    """Run the command from one of doctor's hints, if it is one that the dashboard may run."""
    command = fields.get("command", "")
    if not _MENDS.fullmatch(command):
        raise UsageError("run this command in a terminal", hint=command)
    await run_command(app, *shlex.split(command)[1:], seconds=SETUP_SECONDS)
    return f"Done: {command}"


def _part(name: str, ping: Ping) -> dict[str, Any]:
    command = _COMMAND.search(ping.hint)
    return {
        "name": name,
        "ok": ping.ok,
        "detail": ping.detail,
        "hint": ping.hint,
        "command": command.group(1) if command else "",
        "can_mend": bool(command and _MENDS.fullmatch(command.group(1))),
    }
