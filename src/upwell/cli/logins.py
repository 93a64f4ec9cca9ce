"""login · logout"""

import time
from typing import Annotated

import typer

from upwell.cli.output import note, say
from upwell.cli.session import run


def register(app: typer.Typer) -> None:
    for verb in (login, logout):
        app.command()(verb)


def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A server that has an address.")],
    client_id: Annotated[
        str, typer.Option(help="What the server calls us, where it was agreed on.")
    ] = "",
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1 that the browser comes back to.")
    ] = 0,
    client_secret_env: Annotated[
        str, typer.Option(help="A variable with a secret: log in as a machine, with no browser.")
    ] = "",
    issuer: Annotated[
        str, typer.Option(help="The authorization server that may be told that secret.")
    ] = "",
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address to open.")
    ] = False,
) -> None:
    """Log in at a server that wants OAuth, in your browser. It is renewed by itself afterwards."""
    from upwell.app.login import log_in

    async def show(address: str) -> None:
        from upwell.setup.login import in_browser

        note(f"upwell: open this address to log in at {name}, if no browser does:\n{address}")
        if not no_browser:
            await in_browser(address)

    made = run(
        log_in(
            name,
            show,
            client_id=client_id,
            port=port,
            secret_variable=client_secret_env,
            issuer=issuer,
        )
    )
    say(f"logged in at {name} ({made.described(time.time())})")


def logout(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Forget the login at a server."""
    from upwell.app.login import log_out

    found = run(log_out(name))
    say(f"the login at {name} is forgotten" if found else f"nobody is logged in at {name}")
