"""token add|list|remove"""

from typing import Annotated

import typer

from upwell.cli.output import Json, note, say, say_json, table

token = typer.Typer(help="Who may use `upwell serve --http`.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(token, name="token")


@token.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who it is for.")],
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="What they see of the memory; all without it."),
    ] = None,
) -> None:
    """Make a token for somebody else, and print it: it is shown this once."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import give

    home = Home(default_home()).prepare()
    say(give(home.tokens_file, name, namespace or ()))
    seen = ", ".join(namespace) if namespace else "every namespace"
    note(f"upwell: {name} sees {seen}; `upwell token remove {name}` takes it back")


@token.command("list")
def list_tokens(as_json: Json = False) -> None:
    """Who has a token, beside the owner of this home."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import given_in

    given = given_in(Home(default_home()).tokens_file)
    rows = [
        {
            "name": one.principal.name,
            "namespaces": list(one.principal.namespaces),
            "made_at": one.made_at,
        }
        for one in given
    ]
    if as_json:
        say_json({"tokens": rows})
        return
    shown = [{**row, "namespaces": " ".join(row["namespaces"]) or "all"} for row in rows]
    table(("name", "namespaces", "made_at"), shown, "Only the owner: upwell token add NAME")


@token.command("remove")
def remove(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Take a token back; it holds at once, in a gateway that runs as well."""
    from upwell.ground.home import Home, default_home
    from upwell.web.tokens import take_back

    take_back(Home(default_home()).tokens_file, name)
    say(f"the token of {name} lets nobody in any more")
