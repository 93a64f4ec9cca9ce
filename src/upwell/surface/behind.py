"""What is done behind the calls: writing down, following sessions, taking up what was learned."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from upwell.ground.trace import LOG

FLUSH_SECONDS = 0.5

Work = Callable[[], Awaitable[object]]


class Behind:
    """Does its work in order, soon after it was asked to, in batches."""

    def __init__(self, work: Sequence[Work]) -> None:
        self._work = work
        self._due = False
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """There is something to do."""
        self._due = True
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def now(self) -> None:
        """Do it all at once. A part that fails inside costs that part, and never a call."""
        self._due = False
        for work in self._work:
            try:
                await work()
            except Exception:
                LOG.exception("what is done behind the calls failed inside upwell")

    async def aclose(self) -> None:
        """Finish what there is to do."""
        self._ending.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        await self.now()

    async def _run(self) -> None:
        while self._due:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), FLUSH_SECONDS)
            await self.now()
