"""The end of a child, and of the processes that it leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from upwell.wire.child import ChildCommand, Watcher, start

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nobody watches elsewhere")


async def test_a_wait_for_the_exit_reason_survives_a_stop():
    """A grandchild holds its stderr open: more output may still come until the stop."""
    command = ChildCommand(program="sh", args=("-c", "echo oh >&2; sleep 30 & exit 3"))
    child = await start(command, os.environ)
    waiting = asyncio.create_task(child.exit_reason(20.0))
    async with asyncio.timeout(30):
        while child._process.returncode is None or not child._stderr_tail():
            await asyncio.sleep(0.01)
    await child.stop()
    assert await waiting == "it ended with exit code 3; its stderr ended: oh"


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], start_new_session=True)


def ended(process: subprocess.Popen[bytes], within_seconds: float = 20.0) -> bool:
    try:
        return process.wait(within_seconds) == -signal.SIGKILL
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


@LINUX
def test_only_the_groups_that_are_left_are_ended():
    watcher = Watcher()
    sleepers = [sleeper() for _ in range(4)]
    for entry in sleepers:
        watcher.watch(entry.pid)
    for released in (1, 3):
        watcher.release(sleepers[released].pid)
    watcher.close()
    assert [ended(sleepers[n]) for n in (0, 2)] == [True, True]
    assert [sleepers[n].poll() for n in (1, 3)] == [None, None]
    for released in (1, 3):
        sleepers[released].kill()
        sleepers[released].wait()


@LINUX
def test_a_killed_shell_is_replaced():
    watcher = Watcher()
    first, second = sleeper(), sleeper()
    watcher.watch(first.pid)
    shell = watcher.shell
    os.kill(shell, signal.SIGKILL)
    os.waitid(os.P_PID, shell, os.WEXITED | os.WNOWAIT)
    watcher.watch(second.pid)
    assert watcher.shell not in (0, shell)
    watcher.close()
    assert ended(first)
    assert ended(second)


async def test_a_pipe_may_close_after_its_waiter_is_gone():
    """A cancelled wait for stdin to close cancels the future that asyncio would set."""
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    child = await start(ChildCommand(program="sleep", args=("1000",)), {"PATH": os.environ["PATH"]})
    closing = asyncio.create_task(child.sink.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await child.stop(grace_seconds=0.1)
    await asyncio.sleep(0.05)
    assert faults == []
