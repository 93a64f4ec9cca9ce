"""Time: the clock, which tests can control, deadlines, and the record of jumps of the clock.

What is old is deleted. A clock that is wrong for a while would make everything old, so deletions
wait for a day after a jump.
"""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import read_regular_file, write_atomically


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


Deletion = Callable[[], Awaitable[object]]

JUMP_SECONDS = 5 * 86_400.0
"""A clock that advances by more than this between two looks has jumped, or nobody has used the home
in the meantime."""
WAIT_SECONDS = 86_400.0
_RECORD_SECONDS = 3_600.0
"""How often the time is recorded."""


class ClockRecord:
    """The time when the home was last used, and when the clock last jumped, in a file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def has_just_jumped(self) -> bool:
        """Whether the clock jumped ahead within the last day. Records the time."""
        now = float(int(self._clock.now()))  # as it is recorded
        seen, jumped_at = self._read()
        if seen and now - seen > JUMP_SECONDS:
            jumped_at = now
        elif now < jumped_at:
            jumped_at = 0.0  # the clock is right again
        if jumped_at == now or not 0 <= now - seen < _RECORD_SECONDS:
            with suppress(OSError, StoreUnwritable):
                write_atomically(self._path, f"{now:.0f} {jumped_at:.0f}\n")
        return bool(jumped_at) and now - jumped_at < WAIT_SECONDS

    def unless_jumped(self, delete: Deletion) -> Callable[[], Awaitable[None]]:
        """A function that calls `delete`, unless the clock has just jumped."""

        async def careful() -> None:
            if not self.has_just_jumped():
                await delete()

        return careful

    def _read(self) -> tuple[float, float]:
        try:
            seen, jumped_at = read_regular_file(self._path).split()
            return float(seen), float(jumped_at)
        except (OSError, ValueError):
            return 0.0, 0.0
