"""`upwell backup`, `forget`, `restore` and the first command after an upgrade are killed at their
steps, or find the disk full. Nothing that was acknowledged is lost, and the next command works."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Done
from tests.faults.commands import load, run, sound_rows
from tests.small_disk import SmallDisk

RECORDED = Path(__file__).parents[1] / "doors/recorded/home-0.2.0.tar.gz"
"""A home that 0.2.0 has made: three memories, one of them a rule, a rating, and a session."""
OLD_MEMORIES = ["01m8mnbn7v7zdb90", "01m8mnbq3bj4c9nm", "01m8mnbs3609e49c"]
EARLIER = "memory-2026-01-02.db"
MOST_STEPS = 400
MEGABYTES = 8
FREE = range(0, 320_000, 8_192)
"""The disk is full when a command has written this many bytes."""
LIVE = "SELECT id FROM memory ORDER BY id"
TRASHED = "SELECT id FROM trash ORDER BY id"
Check = Callable[["Machine", Done], None]


@dataclass
class Machine:
    """A user's home. `acknowledged` are the ids of the memories that were stored, and `subject` the
    one that the command is about."""

    environment: Mapping[str, str]
    home: Path
    disk: SmallDisk | None = None
    acknowledged: Sequence[str] = ()
    subject: str = ""

    def run(self, *args: str, kill_at: int = 0) -> Done:
        return run(self.environment, *args, kill_at=kill_at)

    def done(self, *args: str) -> Done:
        """Run a command that must succeed."""
        done = self.run(*args)
        assert done.code == 0, (args, done)
        return done

    def live(self) -> list[str]:
        return [row[0] for row in sound_rows(self.home / "memory.db", LIVE)]

    def trashed(self) -> list[str]:
        return [row[0] for row in sound_rows(self.home / "memory.db", TRASHED)]

    def copies(self) -> dict[str, list[str]]:
        """The memories in each backup."""
        backups = sorted((self.home / "backups").glob("memory-*-*-*.db"))
        return {path.name: [row[0] for row in sound_rows(path, LIVE)] for path in backups}

    def litter(self) -> list[str]:
        marks = (".partial", ".corrupt", ".salvage")
        names = [path.name for path in self.home.rglob("*")]
        return [name for name in names if any(mark in name for mark in marks)]


def with_memories(machine: Machine) -> None:
    """Three memories in the backup of an earlier day, and one that came later."""
    kinds = ("kettle", "harbour", "lantern")
    ids = [machine.done("remember", f"The {kind} is blue at noon").line for kind in kinds]
    today = Path(machine.done("backup").line).name
    (machine.home / "backups" / today).rename(machine.home / "backups" / EARLIER)
    ids.append(machine.done("remember", "Buoys are repainted in May").line)
    machine.acknowledged, machine.subject = sorted(ids), ids[0]


def with_one_forgotten(machine: Machine) -> None:
    with_memories(machine)
    machine.done("forget", machine.subject)


def of_0_2_0(machine: Machine) -> None:
    with tarfile.open(RECORDED) as recording:
        recording.extractall(machine.home.parent / "unpacked", filter="data")
    shutil.copytree(machine.home.parent / "unpacked/home", machine.home)
    shutil.rmtree(machine.home.parent / "unpacked")
    machine.acknowledged = OLD_MEMORIES


def backed_up(machine: Machine, done: Done) -> None:
    everything = list(machine.acknowledged)
    assert machine.live() == everything
    before = machine.copies()
    assert len(before[EARLIER]) == 3
    for name in before.keys() - {EARLIER}:
        assert before[name] == everything
    if done.code == 0:
        assert len(before) == 2
    newest = Path(machine.done("backup").line).name
    assert machine.copies()[newest] == everything
    assert machine.litter() == []


def forgotten_or_not(machine: Machine, done: Done) -> None:
    """The memory is in one place. The next commands find it there."""
    others = [id for id in machine.acknowledged if id != machine.subject]
    assert [id for id in machine.live() if id != machine.subject] == others
    places = machine.live().count(machine.subject), machine.trashed().count(machine.subject)
    assert sum(places) == 1, places
    if done.code == 0:
        assert places == ((0, 1) if done.out.startswith("forgot") else (1, 0))
    if places == (0, 1):
        assert_one_line(machine.run("forget", machine.subject), "recall --trash")
        machine.done("restore", machine.subject)
    else:
        assert_one_line(machine.run("restore", machine.subject), "recall --trash")
        machine.done("forget", machine.subject)
        machine.done("restore", machine.subject)
    assert machine.live() == list(machine.acknowledged)
    hits = machine.done("recall", "kettle", "--json").json["hits"]
    assert [hit["id"] for hit in hits][:1] == [machine.subject]


def upgraded(machine: Machine, done: Done) -> None:
    assert machine.live() == OLD_MEMORIES
    hits = machine.done("recall", "idempotency", "--json").json["hits"]
    assert [hit["id"] for hit in hits] == OLD_MEMORIES[:1]
    assert "problem document" in machine.done("rules").out
    assert machine.done("stats", "--json").json["feedback"]["helpful"] == 1
    assert machine.litter() == []


@dataclass(frozen=True)
class Drill:
    """Prepare a home, let a command fail, and check. `writes`: whether it needs the disk."""

    prepare: Callable[[Machine], None]
    command: Sequence[str]
    check: Check
    writes: bool = True


DRILLS = {
    "backup": Drill(with_memories, ["backup"], backed_up),
    "forget": Drill(with_memories, ["forget"], forgotten_or_not),
    "restore": Drill(with_one_forgotten, ["restore"], forgotten_or_not),
    "upgrade": Drill(of_0_2_0, ["recall", "idempotency"], upgraded, writes=False),
    "upgrade of sessions": Drill(of_0_2_0, ["recall", "--sessions", "basin"], upgraded),
}


def assert_one_line(done: Done, hint: str) -> None:
    assert done.code == 1, done
    assert len(done.err.splitlines()) == 1, done.err
    assert hint in done.err


def assert_lines_about_the_disk(done: Done) -> None:
    """A search says of each part that it could not search, and then why the command failed."""
    assert done.code == 1, done
    *parts, last = done.err.splitlines()
    assert len(parts) <= 3, done.err
    assert all("the disk is full" in line for line in (*parts, last)), done.err
    assert last.endswith("(free some disk space)")


def rounds(machine: Machine, drill: Drill) -> Iterator[tuple[str, ...]]:
    """Before each round, the home is as it was prepared. Yields the command."""
    drill.prepare(machine)
    prepared = machine.home.with_name("prepared")
    shutil.move(machine.home, prepared)
    while True:
        shutil.rmtree(machine.home, ignore_errors=True)
        shutil.copytree(prepared, machine.home)
        subject = [machine.subject] if drill.command[0] in ("forget", "restore") else []
        yield (*drill.command, *subject)


def kill(machine: Machine, drill: Drill, stride: int) -> int:
    """Kill a command at its steps. Returns the number of rounds."""
    for number, command in enumerate(rounds(machine, drill)):
        done = machine.run(*command, kill_at=1 + number * stride)
        drill.check(machine, done)
        if done.code >= 0:
            assert done.code == 0, done
            return number
        assert number * stride < MOST_STEPS, "there are more steps than were tried"
    raise AssertionError


def fill(machine: Machine, drill: Drill, stride: int) -> int:
    """Let a command find the disk full after some bytes. Returns the number of refusals."""
    assert machine.disk
    refusals = 0
    for free, command in zip(FREE[::stride], rounds(machine, drill), strict=False):
        machine.disk.leave_free(free)
        done = machine.run(*command)
        machine.disk.leave_free(MEGABYTES << 20)
        if done.code:
            if drill.writes:
                assert_one_line(done, "free some disk space")
            else:
                assert_lines_about_the_disk(done)
            refusals += 1
        drill.check(machine, done)
    return refusals


def drilled(folder: Path, name: str, fault: str, stride: int) -> int:
    """Run a drill. This process must have one thread only, because it forks."""
    load()
    user = folder / "user"
    user.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(user),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    if fault == "kill":
        home = folder / "upwell/home"
        home.parent.mkdir()
        machine = Machine({**environment, "UPWELL_HOME": str(home)}, home)
        return kill(machine, DRILLS[name], stride)
    disk = SmallDisk(MEGABYTES)
    try:
        disk.enter()
        home = disk.inner / "home"
        machine = Machine({**environment, "UPWELL_HOME": str(home)}, home, disk)
        return fill(machine, DRILLS[name], stride)
    finally:
        disk.remove()


EVERY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("fault", "stride"),
    [
        ("kill", 9),
        ("full", 5),
        pytest.param("kill", 1, marks=EVERY),
        pytest.param("full", 1, marks=EVERY),
    ],
)
@pytest.mark.parametrize("name", DRILLS)
def test_a_command_that_fails_in_the_middle_loses_nothing(
    tmp_path: Path, name: str, fault: str, stride: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, tmp_path, name, fault, f"{stride}"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    least = 5 if fault == "kill" else int(DRILLS[name].writes)
    assert int(done.stdout) >= least


if __name__ == "__main__":
    print(drilled(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])))
