"""The commands `login`, `logout`, `token add|list|remove` and `team join|status|leave|audit`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import click
from click.exceptions import Exit
from msgspec.structs import asdict

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import run, with_app
from upwell.ground.errors import UsageError
from upwell.ground.text.words import counted, iso
from upwell.ground.types.rpc import Role

if TYPE_CHECKING:
    from pathlib import Path

    from upwell.app import App
    from upwell.ground.types.rpc import Ping


def login(
    name: Annotated[str, Argument(metavar="NAME", help="A server configured with --url.")],
    client_id: Annotated[str, Option(help="Client id, if the server registered one for you.")] = "",
    port: Annotated[int, Option(help="Port on 127.0.0.1 that the browser returns to.")] = 0,
    client_secret_env: Annotated[
        str,
        Option(help="Environment variable with a client secret, to sign in without a browser."),
    ] = "",
    issuer: Annotated[str, Option(help="Authorization server that may receive the secret.")] = "",
    no_browser: Annotated[bool, Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Sign in to a server with OAuth in your browser. From then on, upwell renews the login."""
    from upwell.app.login import log_in

    async def show(address: str) -> None:
        from upwell.setup.login import in_browser

        note(f"upwell: to sign in to {name}, open this address if no browser opens:\n{address}")
        if not no_browser:
            await in_browser(address)

    new_login = run(
        log_in(
            name,
            show,
            client_id=client_id,
            port=port,
            secret_variable=client_secret_env,
            issuer=issuer,
        )
    )
    say(f"signed in to {name} ({new_login.described(time.time())})")


def logout(name: Annotated[str, Argument(metavar="NAME")]) -> None:
    """Sign out of a server."""
    from upwell.app.login import log_out

    was_signed_in = run(log_out(name))
    say(f"signed out of {name}" if was_signed_in else f"not signed in to {name}")


token = Group("Access tokens for `upwell serve --http`.")


def _tokens_file() -> "Path":
    from upwell.config import read_valid

    return read_valid()[0].home.prepare().tokens_file


@token.command("add")
def add(
    name: Annotated[str, Argument(metavar="NAME", help="The user's name.")],
    namespace: Annotated[
        list[str] | None,
        Option(
            metavar="NAMESPACE",
            help="A namespace that the user may see, or NAME/* for everything below it; "
            "repeatable. Default: all except other people's private ones.",
        ),
    ] = None,
    role: Annotated[
        Role,
        Option(help="Readers change nothing; admins can also change read-only namespaces."),
    ] = Role.WRITER,
) -> None:
    """Create a token for another user and print it. The token is shown only once."""
    from upwell.app.team import record_administration
    from upwell.web.tokens import issue

    say(issue(_tokens_file(), name, namespace or (), role=role))
    run(record_administration("token_add", f"{name} as {role}"))
    seen = ", ".join(namespace or ["every namespace except other people's private ones"])
    note(f"upwell: {name} has the role {role} and sees {seen}")
    note(f"upwell: `upwell token remove {name}` revokes the token")


@token.command("list")
def list_tokens(as_json: Json = False) -> None:
    """List the users who have a token. The owner of this home is not listed."""
    from upwell.web.tokens import tokens_in

    tokens = tokens_in(_tokens_file())
    rows = [
        {
            "name": issued.principal.name,
            "namespaces": list(issued.principal.namespaces),
            "role": str(issued.principal.role),
            "made_at": issued.made_at,
        }
        for issued in tokens
    ]
    if as_json:
        say_json({"tokens": rows})
        return
    shown = [{**row, "namespaces": " ".join(row["namespaces"]) or "all"} for row in rows]
    table(
        ("name", "namespaces", "role", "made_at"),
        shown,
        "Only the owner has access. Add a user: upwell token add NAME",
    )


@token.command("remove")
def remove(name: Annotated[str, Argument(metavar="NAME")]) -> None:
    """Revoke a token. Running gateways reject it at once."""
    from upwell.app.team import record_administration
    from upwell.web.tokens import revoke

    revoke(_tokens_file(), name)
    run(record_administration("token_remove", name))
    say(f"revoked the token of {name}")


team = Group("Share memories with a team, using a token for its gateway.")


@team.command("join")
def join(
    url: Annotated[str, Argument(metavar="URL", help="The gateway's address, like https://HOST.")],
) -> None:
    """Copy a team's memories to this machine. Asks for the token that the gateway's owner created
    with `upwell token add`, or reads it from stdin."""
    from upwell.app.team import join as try_and_store

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
        from upwell.app.local_copy import copy_ping
        from upwell.app.team import described

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
    from upwell.app.team import leave as drop

    removed = run(drop(drop_waiting=yes))
    say(f"left the team; {counted(removed, 'copied memory', 'copied memories')} removed")


@team.command("audit")
def audit(
    limit: Annotated[int, Option("-n", help="The number of entries.")] = 100,
    as_json: Json = False,
) -> None:
    """List who changed memories and who was denied access. The newest entry comes first."""
    from upwell.app.team import audit as latest

    rows = [{**asdict(event), "at": iso(event.at)} for event in run(latest(limit))]
    if as_json:
        say_json({"events": rows})
    else:
        table(("at", "actor", "action", "subject", "outcome"), rows, "No entries.")
