"""One command's life: build the app, do the work, close it."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upwell.app import App


def with_app[T](work: Callable[["App"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Run `work` on a fresh app of the user's home, keep house, and close it. `tolerant`: it does
    without the store of memories where that cannot be opened."""

    async def whole() -> T:
        from upwell.app import Settings, build

        app = await build(Settings(cwd=folder(), tolerant=tolerant))
        try:
            result = await work(app)
            await app.keep_house()
            return result
        finally:
            await app.aclose()

    return asyncio.run(whole())


def folder() -> str | None:
    """Where the command runs; None where that folder is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
