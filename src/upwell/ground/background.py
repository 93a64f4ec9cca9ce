"""What outlives a call: background tasks, and receipts, which report whether a response reached its
client."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from upwell.ground.trace import LOG


class BackgroundTasks:
    """Starts tasks, keeps references to them, logs their exceptions under the name `owner`, and
    cancels them in `aclose()`.

    asyncio keeps only weak references to tasks. If nobody awaits a task, its exception is reported
    only when the task is garbage-collected.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start[T](self, work: Coroutine[Any, Any, T], *, name: str = "") -> "asyncio.Task[T]":
        """Run `work` concurrently."""
        task = asyncio.create_task(work, name=name or self._owner)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def cancel(self) -> None:
        """Cancel every task without waiting for it to end."""
        for task in list(self._tasks):
            task.cancel()

    async def drain(self) -> None:
        """Wait until all tasks have ended, even those that start in the meantime."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Cancel every task and wait until all have ended."""
        self.cancel()
        await self.drain()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            LOG.error("%s: a background task failed", self._owner, exc_info=error)


Settled = Callable[[bool], None]
"""A callback that is told whether the response arrived."""


class Receipt:
    """Reports whether a response reached its client. The code that writes the response creates the
    receipt and settles it. Code that adds something to the response registers a callback.
    """

    def __init__(self) -> None:
        self._callbacks: list[Settled] = []
        self._delivered: bool | None = None

    @property
    def is_awaited(self) -> bool:
        """Whether a callback is waiting for the outcome."""
        return bool(self._callbacks)

    def when_settled(self, callback: Settled) -> None:
        """Call `callback` as soon as it is known whether the response arrived."""
        if self._delivered is None:
            self._callbacks.append(callback)
        else:
            callback(self._delivered)

    def settle(self, delivered: bool) -> None:
        """Record whether the response arrived. Only the first call counts."""
        if self._delivered is None:
            self._delivered = delivered
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback(delivered)


def settled() -> Receipt:
    """Return a receipt that is already settled as delivered."""
    receipt = Receipt()
    receipt.settle(True)
    return receipt
