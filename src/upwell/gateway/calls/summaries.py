"""Dedicated threads for work that waits for a language model.

A model may take a minute to answer, or never answer. `asyncio.to_thread` has few threads, which
serve every call, so such work must not occupy them.
"""

from collections.abc import Callable

from upwell.ground.threads import on_daemon_thread

MAX_SUMMARIES = 8
"""How many texts may wait for the model at once."""


class SummaryThreads:
    """Runs functions on daemon threads. `is_full` is true while the maximum number of them (`most`)
    is running; the caller checks it before `run`."""

    def __init__(self, most: int = MAX_SUMMARIES) -> None:
        self._most = most
        self._places: set[object] = set()

    @property
    def is_full(self) -> bool:
        return len(self._places) >= self._most

    async def run[T](self, work: Callable[[], T]) -> T:
        """The result of `work`, or its exception. If the caller is cancelled, the thread keeps its
        place until `work` ends."""
        place = object()
        self._places.add(place)

        def in_place() -> T:
            try:
                return work()
            finally:
                self._places.discard(place)

        return await on_daemon_thread(in_place, "summary")
