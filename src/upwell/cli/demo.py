"""The command `demo`."""

import click

from upwell.cli.session import read_config


def demo() -> None:
    """See upwell at work on a real server, real files and memories."""
    import asyncio

    from upwell.app import decisions
    from upwell.demo.play import play

    asyncio.run(play(click.echo, read_config().environment, decisions))
