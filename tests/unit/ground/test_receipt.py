"""Whoever wants to know whether an answer arrived is told, once."""

from upwell.ground.background import Receipt, settled


def test_every_subscriber_is_notified_once() -> None:
    receipt, told = Receipt(), list[bool]()
    assert not receipt.is_awaited
    receipt.when_settled(told.append)
    receipt.when_settled(told.append)
    assert receipt.is_awaited
    receipt.settle(False)
    receipt.settle(True)
    assert told == [False, False]


def test_later_subscribers_are_notified_at_once() -> None:
    told = list[bool]()
    settled().when_settled(told.append)
    assert told == [True]
