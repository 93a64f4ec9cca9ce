"""The fate of an answer: did it reach its client?"""

from collections.abc import Callable

Settled = Callable[[bool], None]
"""Receives whether the answer arrived."""


class Receipt:
    """Made by the front that writes an answer, and settled by it once. Those who put something into
    the answer ask to be told."""

    def __init__(self) -> None:
        self._callbacks: list[Settled] = []
        self._delivered: bool | None = None

    @property
    def is_awaited(self) -> bool:
        """Does anybody ask what becomes of the answer?"""
        return bool(self._callbacks)

    def when_settled(self, callback: Settled) -> None:
        """Call `callback` when the fate of the answer is known; at once where it is."""
        if self._delivered is None:
            self._callbacks.append(callback)
        else:
            callback(self._delivered)

    def settle(self, delivered: bool) -> None:
        """The answer arrived, or did not. Only the first call counts."""
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
