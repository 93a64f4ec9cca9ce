"""The command `dashboard`."""

from typing import Annotated

from upwell.cli.command import Option
from upwell.cli.output import note, say
from upwell.cli.session import run


def dashboard(
    port: Annotated[
        int, Option(min=0, max=65_535, help="Port to listen on; 0 takes any free one.")
    ] = 0,
    open_it: Annotated[
        bool, Option("--open/--no-open", help="Open the browser, or only print the address.")
    ] = True,
) -> None:
    """Show decisions, memories and savings in a browser. Ctrl-C stops the server."""
    from upwell.app.dashboard.desk import serve_dashboard

    def opened(address: str) -> None:
        say(address)
        note("upwell: the address contains your token; Ctrl-C stops the server")
        if open_it:
            import webbrowser

            webbrowser.open(address)

    run(serve_dashboard(port, opened))
