"""The command `dashboard`."""

from typing import Annotated

import typer

from upwell.cli.output import note, say
from upwell.cli.session import run


def register(app: typer.Typer) -> None:
    app.command()(dashboard)


def dashboard(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes any free one.")
    ] = 0,
    open_it: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the browser, or only print the address.")
    ] = True,
) -> None:
    """Show decisions, memories and savings in a browser. Ctrl-C stops the server."""
    from upwell.app.dashboard.serve import serve_dashboard

    def opened(address: str) -> None:
        say(address)
        note("upwell: the address contains your token; Ctrl-C stops the server")
        if open_it:
            import webbrowser

            webbrowser.open(address)

    run(serve_dashboard(port, opened))
