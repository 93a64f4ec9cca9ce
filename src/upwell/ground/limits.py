"""Time and restraint: the clock, deadlines, the circuit breaker, the rate limit.

Nothing here reads the time by itself: a `Clock` is passed in, so tests own it.
"""

import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Both methods give seconds."""

    def now(self) -> float:
        """Wall time, seconds since the epoch (UTC)."""
        ...

    def monotonic(self) -> float:
        """Time that only grows; its zero means nothing."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment, made once at the door and passed down; nobody deeper invents a timeout."""

    at: float
    clock: Clock = SYSTEM_CLOCK

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        return cls(clock.monotonic() + seconds, clock)

    def remaining(self) -> float:
        """Seconds left; zero when it has passed."""
        return max(0.0, self.at - self.clock.monotonic())

    def passed(self) -> bool:
        return self.remaining() == 0.0

    def sooner(self, seconds: float) -> "Deadline":
        """The earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.at, self.clock.monotonic() + seconds), self.clock)


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Three-state circuit breaker over consecutive failures (seed 000).

    Opens after `max_failures` failures in a row, lets one probe through after
    `reset_seconds`, closes on the first success. A probe that never reports back
    frees its place after another `reset_seconds`, so the breaker always recovers.
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
        """May a call be made now? In half-open state only one at a time may."""
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
        self._failures = 0
        self._opened_at = None
        self._probe_at = None

    def fail(self) -> None:
        self._failures += 1
        self._probe_at = None
        if self._failures >= self._max_failures:
            self._opened_at = self._clock.monotonic()


class RateLimit:
    """At most `per_minute` events in any 60 seconds."""

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._events: deque[float] = deque()

    def allow(self) -> bool:
        """Is there room for one more? Asking does not use it up; `take` does."""
        horizon = self._clock.monotonic() - 60.0
        while self._events and self._events[0] <= horizon:
            self._events.popleft()
        return len(self._events) < self._per_minute

    def take(self) -> None:
        self._events.append(self._clock.monotonic())

    def give_back(self) -> None:
        """The latest event did not happen after all."""
        if self._events:
            self._events.pop()
