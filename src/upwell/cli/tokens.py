"""token add|list|remove"""

from typing import Annotated

import typer

from upwell.cli.output import Json, note, say, say_json, table
from upwell.ground.types.principal import Role

token = typer.Typer(help="Access tokens for `upwell serve --http`.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(token, name="token")


@token.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMESPACE",
            help="Namespace the user may see, or NAME/* for all below; repeatable. All if omitted.",
        ),
    ] = None,
    role: Annotated[
        Role,
        typer.Option(help="A reader changes nothing; an admin also changes read-only ones."),
    ] = Role.WRITER,
    tenant: Annotated[
        str, typer.Option(metavar="TENANT", help="The user's tenant. The home's if omitted.")
    ] = "",
) -> None:
    """Create a token for another user and print it. It is shown only once."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import issue

    home = Home(default_home()).prepare()
    say(issue(home.tokens_file, name, namespace or (), tenant=tenant, role=role))
    seen = ", ".join(namespace) if namespace else "every namespace"
    note(f"upwell: {name} is a {role} of {tenant or 'this home'} and sees {seen}")
    note(f"upwell: `upwell token remove {name}` revokes the token")


@token.command("list")
def list_tokens(as_json: Json = False) -> None:
    """List the users with a token, besides the owner of this home."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import tokens_in

    tokens = tokens_in(Home(default_home()).tokens_file)
    rows = [
        {
            "name": issued.principal.name,
            "namespaces": list(issued.principal.namespaces),
            "role": str(issued.principal.role),
            "tenant": issued.principal.tenant,
            "made_at": issued.made_at,
        }
        for issued in tokens
    ]
    if as_json:
        say_json({"tokens": rows})
        return
    shown = [{**row, "namespaces": " ".join(row["namespaces"]) or "all"} for row in rows]
    table(
        ("name", "namespaces", "role", "tenant", "made_at"),
        shown,
        "Only the owner has access. Add a user: upwell token add NAME",
    )


@token.command("remove")
def remove(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Revoke a token. Running gateways reject it at once."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import revoke

    revoke(Home(default_home()).tokens_file, name)
    say(f"revoked the token of {name}")
