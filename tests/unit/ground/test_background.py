"""Background tasks, receipts, the circuit breaker, and deadlines."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from upwell.ground.background import BackgroundTasks, Breaker, BreakerState, Receipt, settled
from upwell.ground.clock import Deadline
from upwell.testing import ManualClock


async def test_closing_cancels_running_work_and_waits_for_its_end() -> None:
    tasks, ended = BackgroundTasks("owner"), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("work")

    task = tasks.start(work())
    await asyncio.sleep(0)
    assert len(tasks) == 1
    await tasks.aclose()
    assert task.cancelled()
    assert ended == ["work"]
    assert len(tasks) == 0


async def test_a_failure_that_nobody_awaits_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = BackgroundTasks("the owner")

    async def broken() -> None:
        raise RuntimeError("a bug")

    tasks.start(broken())
    await tasks.drain()
    await asyncio.sleep(0)
    [record] = caplog.records
    assert "the owner" in record.getMessage()
    assert record.exc_info
    assert str(record.exc_info[1]) == "a bug"


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


def test_the_breaker_opens_after_failures_in_a_row_and_recovers():
    clock = ManualClock()
    breaker = Breaker(3, 60.0, clock)
    breaker.fail()
    breaker.fail()
    breaker.succeed()
    for _ in range(3):
        assert breaker.allow()
        breaker.fail()
    assert breaker.state is BreakerState.OPEN
    assert not breaker.allow()
    clock.advance(60.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert breaker.allow()
    assert not breaker.allow(), "one probe at a time"
    breaker.succeed()
    assert breaker.state is BreakerState.CLOSED


def test_a_probe_that_never_reports_does_not_shut_the_breaker_for_ever():
    clock = ManualClock()
    breaker = Breaker(1, 60.0, clock)
    breaker.fail()
    clock.advance(60.0)
    assert breaker.allow()
    clock.advance(60.0)
    assert breaker.allow()


class BreakerAgainstModel(RuleBasedStateMachine):
    """Once the cause is gone, the breaker always closes again."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.breaker = Breaker(3, 60.0, self.clock)
        self.in_a_row = 0

    @rule()
    def fail(self) -> None:
        if self.breaker.allow():
            self.breaker.fail()
            self.in_a_row += 1

    @rule()
    def succeed(self) -> None:
        if self.breaker.allow():
            self.breaker.succeed()
            self.in_a_row = 0

    @rule()
    def wait(self) -> None:
        self.clock.advance(61.0)

    @precondition(lambda self: self.in_a_row < 3)
    @rule()
    def stays_closed_below_the_threshold(self) -> None:
        assert self.breaker.state is BreakerState.CLOSED

    @rule()
    def always_recovers(self) -> None:
        self.clock.advance(61.0)
        assert self.breaker.allow()
        self.breaker.succeed()
        self.in_a_row = 0
        assert self.breaker.state is BreakerState.CLOSED


TestBreakerAgainstModel = BreakerAgainstModel.TestCase
TestBreakerAgainstModel.settings = settings(max_examples=40, deadline=None)


def test_sooner_never_extends_a_deadline():
    clock = ManualClock()
    deadline = Deadline.after(3.0, clock)
    assert deadline.sooner(10.0).remaining() == 3.0
    assert deadline.sooner(1.0).remaining() == 1.0
    clock.advance(5.0)
    assert deadline.passed()
