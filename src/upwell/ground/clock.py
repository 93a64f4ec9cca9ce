"""Time: the clock and deadlines.

Much of the code receives a `Clock` instead of reading the time, so that tests can control the time.
"""

import time
from typing import Protocol

from msgspec import Struct


class Clock(Protocol):
    """The source of time."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return a number of seconds that never decreases. Only differences are meaningful."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()


class Deadline(Struct, frozen=True):
    """A moment `at` on the monotonic `clock`.

    It is passed from caller to callee, so that all waits share one limit.
    """

    at: float
    clock: Clock = SYSTEM_CLOCK

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        """Return a deadline `seconds` from now."""
        return cls(clock.monotonic() + seconds, clock)

    def remaining(self) -> float:
        """Return the seconds left, or 0 when the deadline has passed."""
        return max(0.0, self.at - self.clock.monotonic())

    def passed(self) -> bool:
        return self.remaining() == 0.0

    def sooner(self, seconds: float) -> "Deadline":
        """Return the earlier of this deadline and `seconds` from now."""
        return Deadline(min(self.at, self.clock.monotonic() + seconds), self.clock)
