"""Runs work that may hang, such as a request to a model, on a separate thread."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import cast


def on_daemon_thread[T](work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `work()` on a daemon thread, which never delays the exit of the process. Cancelling the
    future does not stop the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, result))

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = work(), None
        except BaseException as error:
            outcome = None, error
        # The loop may have been closed in the meantime.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, *outcome)

    Thread(target=run, daemon=True, name=name).start()
    return future
