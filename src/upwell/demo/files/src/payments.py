"""Charging orders through a payment provider, with retries."""

import time
from collections.abc import Callable

MAX_ATTEMPTS = 5
FIRST_DELAY_SECONDS = 0.5


class ChargeFailed(Exception):
    """No attempt went through."""


def idempotency_key(order_id: int, attempt: int) -> str:
    return f"order-{order_id}"


def charge(order_id: int, send: Callable[[str], bool]) -> int:
    """Try until `send` says that the charge went through. Returns the number of that attempt."""
    delay = FIRST_DELAY_SECONDS
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if send(idempotency_key(order_id, attempt)):
            return attempt
        time.sleep(delay)
        delay *= 2
    raise ChargeFailed(f"order {order_id}: {MAX_ATTEMPTS} attempts failed")
