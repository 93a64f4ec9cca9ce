"""Dedicated threads for work that waits for a language model.

A model may take a minute to reply, or never reply. Such work must not occupy the few threads of
`asyncio.to_thread()`, which all calls share.
"""

from collections.abc import Callable

from upwell.ground.threads import on_daemon_thread

MAX_SUMMARIES = 8
"""How many texts may wait for the model at once."""


class SummaryThreads:
    """Runs functions on daemon threads. To run at most `most` at a time, the caller must check
    `is_full` before it calls `run()`."""

    def __init__(self, most: int = MAX_SUMMARIES) -> None:
        self._most = most
        self._places: set[object] = set()

    @property
    def is_full(self) -> bool:
        return len(self._places) >= self._most

    async def run[T](self, work: Callable[[], T]) -> T:
        """Return the result of `work()`. If the caller is cancelled, `work()` still occupies its
        place until it returns."""
        place = object()
        self._places.add(place)

        def in_place() -> T:
            try:
                return work()
            finally:
                self._places.discard(place)

        return await on_daemon_thread(in_place, "summary")
