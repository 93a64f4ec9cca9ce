"""Receipts report whether a response reached its client."""

from collections.abc import Callable

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
