"""Notices that the clock has jumped ahead, as after a wrong setting of its date.

What is old is deleted. A clock that is wrong for a while would make everything old, so deletions
wait for a day after a jump.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from upwell.ground.clock import Clock
from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import read_regular_file, write_atomically

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

    def unless_jumped(
        self, delete: Callable[[], Awaitable[object]]
    ) -> Callable[[], Awaitable[None]]:
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
