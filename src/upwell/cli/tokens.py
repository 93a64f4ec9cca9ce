"""The commands `token add|list|remove`."""

from typing import TYPE_CHECKING, Annotated

from upwell.cli.command import Argument, Group, Option
from upwell.cli.output import Json, note, say, say_json, table
from upwell.cli.session import run
from upwell.ground.types.principal import Role

if TYPE_CHECKING:
    from pathlib import Path

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
    from upwell.app.auditing import record_administration
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
    from upwell.app.auditing import record_administration
    from upwell.web.tokens import revoke

    revoke(_tokens_file(), name)
    run(record_administration("token_remove", name))
    say(f"revoked the token of {name}")
