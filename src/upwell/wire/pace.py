"""Limit the rate of messages from one server, so that it does not hold up the others.

The number of answers is limited by the number of our requests. The rate limit applies to all other
messages: notifications, the server's own requests, and unrequested answers. When a server exceeds
the rate, the gateway stops reading for a while, and the pipe fills.
"""

import asyncio
import time
from collections.abc import Callable

from upwell.ground.trace import LOG

UNASKED_PER_SECOND = 1_000.0
UNASKED_AT_ONCE = 2_000.0
BYTES_A_MESSAGE = 4_096
"""A longer message counts as several messages."""
TURN_SECONDS = 0.002
"""How long one server's messages may be read before the event loop gets to run other tasks."""
OFFENCE_SECONDS = 60.0
"""A server that exceeds the rate for this long is restarted."""


class Flood(ValueError):
    """A server has sent too much for too long."""


class ServerPace:
    """The rate limit of the server `name`."""

    def __init__(self, name: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._allowance = UNASKED_AT_ONCE
        self._at = now()
        self._turn_began = self._at
        self._held_since: float | None = None

    async def taken(self, unasked_bytes: int | None) -> None:
        """Count a message, and wait until the next one may be taken. `unasked_bytes` is the size of
        the message, or None if it answers a pending request.

        Raises:
            Flood: the server has exceeded the rate for `OFFENCE_SECONDS`.
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
