"""What outlives a call or may hang: background tasks, receipts (which report whether a response
reached its client), work on daemon threads, and the circuit breaker.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import StrEnum
from threading import Thread
from typing import Any, cast

from upwell.ground.clock import Clock
from upwell.ground.trace import LOG


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


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """A circuit breaker with three states (seed 000 in tests/NAMES.md).

    The breaker opens after `max_failures` failures in a row, admits one probe after
    `reset_seconds`, and closes on the first success. If a probe never reports, the next probe is
    admitted after another `reset_seconds`, so the breaker always recovers.
    """

    def __init__(self, max_failures: int, reset_seconds: float, clock: Clock) -> None:
        self._max_failures = max_failures
        self._reset_seconds = reset_seconds
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probe_at: float | None = None

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        if self._clock.monotonic() - self._opened_at < self._reset_seconds:
            return BreakerState.OPEN
        return BreakerState.HALF_OPEN

    def allow(self) -> bool:
        """Return whether a call may be made now. The half-open state admits one call at a time."""
        state = self.state
        if state is BreakerState.CLOSED:
            return True
        if state is BreakerState.OPEN:
            return False
        now = self._clock.monotonic()
        if self._probe_at is not None and now - self._probe_at < self._reset_seconds:
            return False
        self._probe_at = now
        return True

    def succeed(self) -> None:
        """Record a success, which closes the breaker."""
        self._failures = 0
        self._opened_at = None
        self._probe_at = None

    def fail(self) -> None:
        """Record a failure."""
        self._failures += 1
        self._probe_at = None
        if self._failures >= self._max_failures:
            self._opened_at = self._clock.monotonic()


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
