"""The inbox when the process is killed, or the disk is full, at each step of writing it."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from upwell.capture.inbox import WHY_RULE, Inbox, Proposal, inbox_at
from upwell.ground.errors import StoreUnwritable

STEPS = ("replace", "unlink", "fsync", "write")
MAX_STEPS = 40


def proposal(text: str) -> Proposal:
    return Proposal(text=text, source="session:1", why=WHY_RULE, project="/repo")


OLD, NEW = proposal("Use tabs"), proposal("Be brief")
CHANGES: dict[str, Callable[[Inbox], object]] = {
    "propose": lambda box: box.propose([NEW]),
    "take": lambda box: box.take([OLD.id]),
    "ban": lambda box: box.ban([OLD]),
    "withdraw": lambda box: box.withdraw([OLD.id]),
}


@contextmanager
def fault_at(number: int, fault: Callable[[str], None]) -> Iterator[list[str]]:
    """Call `fault` before the step `number` and every later one. Yields the steps so far."""
    steps: list[str] = []
    originals = {name: getattr(os, name) for name in STEPS}
    mkstemp = tempfile.mkstemp

    def counted[**P, R](name: str, step: Callable[P, R]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            steps.append(name)
            if len(steps) >= number:
                fault(name)
            return step(*args, **kwargs)

        return call

    for name, step in originals.items():
        setattr(os, name, counted(name, step))
    tempfile.mkstemp = counted("mkstemp", mkstemp)
    try:
        yield steps
    finally:
        tempfile.mkstemp = mkstemp
        for name, step in originals.items():
            setattr(os, name, step)


def filled(path: Path) -> Inbox:
    path.unlink(missing_ok=True)
    box = inbox_at(path)
    box.propose([OLD])
    return box


def outcomes(path: Path, change: Callable[[Inbox], object]) -> tuple[bytes, bytes]:
    box = filled(path)
    before = path.read_bytes()
    change(box)
    return before, path.read_bytes()


@pytest.mark.parametrize("name", CHANGES)
def test_a_killed_command_leaves_the_inbox_as_it_was_or_as_it_should_be(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "inbox.json"
    expected = outcomes(path, CHANGES[name])
    waiting = [item.id for item in inbox_at(path).waiting()]
    seen = set()
    for number in range(1, MAX_STEPS):
        box = filled(path)
        child = os.fork()
        if not child:
            with fault_at(number, lambda step: os._exit(9)):
                CHANGES[name](box)
            os._exit(0)
        is_killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert path.read_bytes() in expected
        seen.add(path.read_bytes())
        CHANGES[name](inbox_at(path))
        assert [item.id for item in box.waiting()] == waiting, "the command can be repeated"
        if not is_killed:
            break
    assert seen == set(expected)


@pytest.mark.parametrize("name", CHANGES)
def test_a_full_disk_is_an_error_that_loses_no_proposal(tmp_path: Path, name: str) -> None:
    path = tmp_path / "inbox.json"
    expected = outcomes(path, CHANGES[name])

    def full(step: str) -> None:
        if step != "unlink":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number in range(1, MAX_STEPS):
        box = filled(path)
        with fault_at(number, full) as steps, suppress(StoreUnwritable):
            CHANGES[name](box)
        assert path.read_bytes() in expected
        assert sorted(tmp_path.glob(".inbox.json-*")) == []
        if len(steps) < number:
            break
