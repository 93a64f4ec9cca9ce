"""The commands `team join|status|leave|audit`."""

import sys
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit
from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import run, with_app
from upwell.ground.errors import UsageError
from upwell.ground.text.format import counted, iso

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.ground.types.rpc import Ping

team = Group("Share memories with a team, using a token for its gateway.")


@team.command("join")
def join(
    url: Annotated[str, Argument(metavar="URL", help="The gateway's address, like https://HOST.")],
) -> None:
    """Copy a team's memories to this machine. Asks for the token that the gateway's owner created
    with `upwell token add`, or reads it from stdin."""
    from upwell.app.joining import join as try_and_store

    is_asked = sys.stdin.isatty()
    token = click.prompt("Token", hide_input=True, err=True) if is_asked else sys.stdin.read()
    joined = run(try_and_store(url, token))
    say(f"joined the team of {joined.gateway}")
    if not joined.may_write:
        note("upwell: your token may only read; memories that you share wait until it may write")
    note("upwell: restart your agents, and run `upwell daemon stop` if hooks use the daemon")


@team.command("status")
def status(as_json: Json = False) -> None:
    """Show the team's memories here, and whether its store answers."""

    async def ping(app: "App") -> "tuple[str, Ping | None]":
        from upwell.app.joining import described
        from upwell.app.local_copy import copy_ping

        return described(app.config), await copy_ping(app.config, app.memory.store)

    url, found = with_app(ping, tolerant=True)
    if found is None:
        raise UsageError(
            "this home has no snapshot of a team's memories", hint="upwell team join URL"
        )
    if as_json:
        say_json({"ok": found.ok, "store": url, "detail": found.detail, "hint": found.hint})
    else:
        say(f"{url}: {found.detail}")
        if not found.ok and found.hint:
            note(f"upwell: {found.hint}")
    if not found.ok:
        raise Exit(1)


@team.command("leave")
def leave(
    yes: Annotated[
        bool, Option("--yes", help="Leave even if some of your changes have not been sent.")
    ] = False,
) -> None:
    """Leave the team. Removes its memories, its token and its address from this home. Your own
    memories stay, and the team keeps what you shared."""
    from upwell.app.joining import leave as drop

    removed = run(drop(drop_waiting=yes))
    say(f"left the team; {counted(removed, 'copied memory', 'copied memories')} removed")


@team.command("audit")
def audit(
    limit: Annotated[int, Option("-n", help="The number of entries.")] = 100,
    as_json: Json = False,
) -> None:
    """List who changed memories and who was denied access. The newest entry comes first."""
    from upwell.app.auditing import audit as latest

    rows = [{**asdict(event), "at": iso(event.at)} for event in run(latest(limit))]
    if as_json:
        say_json({"events": rows})
    else:
        table(("at", "actor", "action", "subject", "outcome"), rows, "No entries.")
