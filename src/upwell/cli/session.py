"""Runs one command: opens what it needs, does the work, and closes it."""

import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import cache
from typing import TYPE_CHECKING, Any

from upwell.cli.output import note

if TYPE_CHECKING:
    from upwell.app.memory import MemoryApp
    from upwell.app.store import Settings, StoreApp
    from upwell.app.wiring import App
    from upwell.config import Config


def with_store[T](work: Callable[["StoreApp"], Awaitable[T]]) -> T:
    """Run `work` with the memories of the user's home, and no search, learning or gateway."""
    from upwell.app.store import StoreApp

    return _with(StoreApp, work)


def with_memory[T](work: Callable[["MemoryApp"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Run `work` with all that the user's home recalls, says and learns. With `tolerant`, it works
    without the memory store if the store cannot be opened."""
    from upwell.app.memory import MemoryApp

    return _with(MemoryApp, work, tolerant=tolerant)


def with_app[T](work: Callable[["App"], Awaitable[T]], *, tolerant: bool = False) -> T:
    """Like `with_memory()`, with the whole app, which loads more slowly."""
    from upwell.app.wiring import App

    return _with(App, work, tolerant=tolerant)


def _with[A: "StoreApp", T](
    kind: Callable[["Settings"], A], work: Callable[[A], Awaitable[T]], *, tolerant: bool = False
) -> T:
    from upwell.app.store import Settings, damage

    async def whole() -> T:
        began = time.time()
        app = kind(Settings(cwd=folder(), tolerant=tolerant))
        try:
            await app.open()
            for mistake in app.mistakes:
                _note_ignored(str(mistake))
            await app.sync_folder()
            result = await work(app)
            if app.is_housekeeping_due():
                await app.run_housekeeping()
            await app.sync_folder()
            if kept := app.kept_folder():
                for line in kept.take_lines():
                    note(f"upwell: {line}")
            return result
        finally:
            await app.aclose()
            if report := damage(app.config.home, began):
                note(f"upwell: {report.detail} ({report.hint})")

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


def folder() -> str | None:
    """The working directory; None if it no longer exists."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None
