"""The circuit breaker.

Runs work that may hang, such as a request to a model, on a separate thread.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from threading import Thread
from typing import cast

from upwell.ground.clock import Clock


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
