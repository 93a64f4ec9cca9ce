"""The command `demo`."""

import typer

from upwell.cli.session import read_config


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo() -> None:
    """See upwell at work on a real server, real files and memories."""
    import asyncio

    from upwell.app import decisions
    from upwell.demo.play import play

    asyncio.run(play(typer.echo, read_config().environment, decisions))
