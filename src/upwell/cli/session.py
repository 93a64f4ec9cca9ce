"""Runs one command: builds the app, does the work, and closes the app."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any

from upwell.cli.output import note

if TYPE_CHECKING:
    from upwell.app import App, MemoryApp
    from upwell.config import Config
    from upwell.ground.home import Home


def with_app[T](work: Callable[["App"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Run `work` with a new app for the user's home, do the housekeeping, and close the app. A
    `tolerant` app works without the memory store if the store cannot be opened.
    """

    from upwell.app import Settings, build

    return _with(build(Settings(cwd=folder(), tolerant=tolerant)), work)


def with_memory[T](work: Callable[["MemoryApp"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Like `with_app()`, with the memory alone, which loads faster."""
    from upwell.app.memory import Settings, build_memory

    return _with(build_memory(Settings(cwd=folder(), tolerant=tolerant)), work)


def _with[A: "MemoryApp", T](building: Awaitable[A], work: Callable[[A], Awaitable[T]]) -> T:
    async def whole() -> T:
        began = time.time()
        app = await building
        try:
            for mistake in app.mistakes:
                _note_ignored(str(mistake))
            result = await work(app)
            await app.run_housekeeping()
            return result
        finally:
            await app.aclose()
            _report_damage(app.config.home, began)

    return run(whole())


def read_config() -> "Config":
    """The configuration, for a command that does not change it. Invalid settings are reported and
    ignored.

    Raises:
        ConfigError: the file cannot be read at all.
    """
    from upwell.config import read_valid

    config, mistakes = read_valid()
    for mistake in mistakes:
        _note_ignored(str(mistake))
    return config


@cache
def _note_ignored(mistake: str) -> None:
    note(f"upwell: ignoring an invalid setting: {mistake}")


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine. asyncio is imported here, because `--help` does not need it."""
    import asyncio

    return asyncio.run(work)


def _report_damage(home: "Home", since: float) -> None:
    from upwell.app.damage import damage

    if report := damage(home, since):
        note(f"upwell: {report.detail} ({report.hint})")


def folder() -> str | None:
    """The working directory; None if it no longer exists."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
