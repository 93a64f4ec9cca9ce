"""One command's life: build the app, do the work, close it."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from upwell.cli.output import note

if TYPE_CHECKING:
    from upwell.app import App
    from upwell.ground.home import Home


def with_app[T](work: Callable[["App"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Run `work` on a fresh app of the user's home, keep house, and close it. `tolerant`: it does
    without the store of memories where that cannot be opened."""

    async def whole() -> T:
        from upwell.app import Settings, build

        began = time.time()
        app = await build(Settings(cwd=folder(), tolerant=tolerant))
        try:
            result = await work(app)
            await app.keep_house()
            return result
        finally:
            await app.aclose()
            _tell_damage(app.config.home, began)

    return run(whole())


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """Do the work on an event loop of its own, which is loaded only now: `--help` needs none."""
    import asyncio

    return asyncio.run(work)


def _tell_damage(home: "Home", since: float) -> None:
    """A memory that was found damaged meanwhile is no small thing."""
    from upwell.app.damage import damage

    if met := damage(home, since):
        note(f"upwell: {met.detail} ({met.hint})")


def folder() -> str | None:
    """Where the command runs; None where that folder is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
