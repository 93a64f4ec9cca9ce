"""Limits the rate at which messages from one server are taken, so that the server does not hold up
the others. The number of our requests limits the number of answers, but not the number of other
messages: notifications, the server's own requests, and answers that nobody asked for. These are
taken at a limited rate. When a server exceeds it, the gateway stops reading for a while, and the
pipe fills.
"""

import asyncio
import time
from collections.abc import Callable

from upwell.ground.trace import LOG

UNASKED_PER_SECOND = 1_000.0
UNASKED_AT_ONCE = 2_000.0
BYTES_A_MESSAGE = 4_096
"""A message longer than this counts as several."""
TURN_SECONDS = 0.002
"""After this much work, the rest of the gateway gets a turn."""
OFFENCE_SECONDS = 60.0
"""A server that sends too much for this long is restarted."""


class Flood(ValueError):
    """A server has sent too much for too long."""


class Pace:
    """The pace of one server, called `name` in the log."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._allowance = UNASKED_AT_ONCE
        self._at = now()
        self._turn_began = self._at
        self._held_since: float | None = None

    async def taken(self, unasked_bytes: int | None) -> None:
        """Account for a message. `unasked_bytes` is its size, or None if it answers a pending
        request. Returns when the next message may be taken.

        Raises:
            Flood: the server has been over its rate for a minute.
        """
        if unasked_bytes is not None:
            self._allowance -= 1 + unasked_bytes // BYTES_A_MESSAGE
        now = self._now()
        if self._allowance >= 0 and now - self._turn_began < TURN_SECONDS:
            return
        self._refill(now)
        wait = max(0.0, -self._allowance / UNASKED_PER_SECOND)
        self._judge(now, held=wait > 0)
        await asyncio.sleep(wait)
        self._turn_began = self._now()

    def _refill(self, now: float) -> None:
        earned = (now - self._at) * UNASKED_PER_SECOND
        self._allowance = min(UNASKED_AT_ONCE, self._allowance + earned)
        self._at = now

    def _judge(self, now: float, *, held: bool) -> None:
        if not held:
            if self._allowance > UNASKED_AT_ONCE / 2:
                self._held_since = None
        elif self._held_since is None:
            self._held_since = now
            LOG.warning(
                "upstream %s sends more than %d messages a second that nobody asked for; "
                "reading from it more slowly",
                self._name,
                UNASKED_PER_SECOND,
            )
        elif now - self._held_since > OFFENCE_SECONDS:
            raise Flood(f"upstream {self._name} sent too much for {OFFENCE_SECONDS:.0f} s")
