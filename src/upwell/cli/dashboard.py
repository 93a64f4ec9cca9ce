"""dashboard: what upwell did and knows, in a browser."""

from typing import Annotated

import typer

from upwell.cli.output import note, say
from upwell.cli.session import run


def register(app: typer.Typer) -> None:
    app.command()(dashboard)


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 0,
    open_it: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the browser, or print the address only.")
    ] = True,
) -> None:
    """Show what upwell did, said and saved, in a browser. Until Ctrl-C."""
    from upwell.app.dashboard import serve_dashboard

    def opened(address: str) -> None:
        say(address)
        note("upwell: the address holds your token; Ctrl-C ends the page")
        if open_it:
            import webbrowser

            webbrowser.open(address)

    run(serve_dashboard(port, opened))
