"""Receipts: whether an answer reached its client."""

from collections.abc import Callable

Settled = Callable[[bool], None]
"""Receives whether the answer arrived."""


class Receipt:
    """Tells whether one answer reached its client. The code that writes the answer creates the
    receipt, and settles it once. Code that adds something to the answer registers a callback.
    """

    def __init__(self) -> None:
        self._callbacks: list[Settled] = []
        self._delivered: bool | None = None

    @property
    def is_awaited(self) -> bool:
        """True if anybody wants to know whether the answer arrives."""
        return bool(self._callbacks)

    def when_settled(self, callback: Settled) -> None:
        """Call `callback` when it is known whether the answer arrived; at once if it is known
        already.
        """
        if self._delivered is None:
            self._callbacks.append(callback)
        else:
            callback(self._delivered)

    def settle(self, delivered: bool) -> None:
        """Record whether the answer arrived. Only the first call counts."""
        if self._delivered is None:
            self._delivered = delivered
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback(delivered)


def settled() -> Receipt:
    """The receipt of an answer that counts as delivered when it is made."""
    receipt = Receipt()
    receipt.settle(True)
    return receipt
