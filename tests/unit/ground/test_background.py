"""Background tasks have an owner that ends them and reports their failures."""

import asyncio

import pytest

from upwell.ground.background import BackgroundTasks


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
