"""Threads of their own for work that waits for a language model.

A model may take a minute to answer, or never answer (seed 002). The threads of `asyncio.to_thread`
are few and serve every call, so such work must not occupy them.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

MAX_SUMMARIES = 8
"""How many texts may wait for the model at once."""


class SummaryThreads:
    """Runs functions on daemon threads, so that a model that does not answer holds up neither other
    work nor the end of the process."""

    def __init__(self, most: int = MAX_SUMMARIES) -> None:
        self._most = most
        self._running: set[Future[Any]] = set()

    @property
    def is_full(self) -> bool:
        return len(self._running) >= self._most

    async def run[T](self, work: Callable[[], T]) -> T:
        """The result of `work`, or its exception. If the caller is cancelled, the thread keeps its
        place until `work` ends."""
        outcome = Future[T]()
        outcome.set_running_or_notify_cancel()
        self._running.add(outcome)
        outcome.add_done_callback(self._running.discard)

        def on_thread() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=on_thread, name="summary", daemon=True).start()
        return await asyncio.wrap_future(outcome)
