"""Only delivered memories count as said: `explain` and `stats` report what agents received, even if
clients are killed, the daemon is stopped in mid-answer, or everything happens at once.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import PATIENCE, QUICK, House
from upwell.hook.control import daemon_at

NOTES = 48
SETTLED_SECONDS = 2.0
"""Enough for the decisions to be stored, which happens every half second."""
WORDS = "amber birch cedar dune ember flint grove heath islet jetty knoll larch".split()


def text_of(number: int) -> str:
    return f"The {WORDS[number % 12]} gauge {number} reports in unit {number * 7919 % 1009}"


def file_of(number: int) -> str:
    return f"{WORDS[number % 12]}_{number}.py"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("delivery"))
    house.home.mkdir(mode=0o700)
    (house.home / "config.toml").write_text(
        "[surface]\nrate_per_minute = 100000\ncooldown_seconds = 0\n"
        # Notes that several sessions of these tests ignored would otherwise be held back.
        "[learn]\nauto_tune = false\n"
    )
    notes = [
        {"id": f"n{number}", "text": text_of(number), "paths": [f"src/{file_of(number)}"]}
        for number in range(NOTES)
    ]
    house.keep(notes)
    house.start()
    yield house
    house.stop()


@dataclass(slots=True)
class Drill:
    """The events of one session, and the memories that their clients delivered. If a client was
    killed after it had written its whole answer, the memory is in `unclear`: a host may or may not
    have used it.
    """

    house: House
    session: str
    before: int = 0
    received: set[str] = field(default_factory=set[str])
    unclear: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.before = self._memories()

    def client(self, number: int) -> "subprocess.Popen[bytes]":
        """A client with the event of one file on its stdin."""
        event = HOSTS["claude"].tool(str(self.house.project), self.house.file(file_of(number)))
        process = subprocess.Popen(
            [*QUICK, "claude"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                name: value
                for name, value in self.house.environment.items()
                if name not in PATIENCE
            },
            cwd=self.house.project,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({**event, "session_id": self.session}).encode())
        process.stdin.close()
        process.stdin = None
        return process

    def collect(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the client, and record the memories that it delivered."""
        out, _ = process.communicate(timeout=20)
        try:
            is_whole = text_of(number) in str(json.loads(out or b"{}"))
        except ValueError:
            is_whole = False
        if is_whole:
            (self.received if process.returncode == 0 else self.unclear).add(f"n{number}")

    def check(self) -> None:
        """The journal and the counters report what the agents received. A memory that was not
        delivered can still surface."""
        time.sleep(SETTLED_SECONDS)
        reported = self._reported()
        assert self.received <= reported, "received, and not in the journal"
        assert reported <= self.received | self.unclear, "in the journal, and not received"
        assert self._memories() - self.before == len(reported)
        for number in range(NOTES):
            identity = f"n{number}"
            if identity not in self.unclear:
                event = HOSTS["claude"].tool(
                    str(self.house.project), self.house.file(file_of(number))
                )
                again = self.house.hook("claude", event={**event, "session_id": self.session})
                assert (text_of(number) in str(again.json)) is (identity not in self.received)

    def _reported(self) -> set[str]:
        shown = self.house.upwell("explain", "--json", "-n", "5000", "--session", self.session)
        decisions = json.loads(shown)["decisions"]
        given = [
            identity
            for decision in decisions
            if decision["outcome"] == "surfaced"
            for identity, _ in decision["memories"]
        ]
        assert len(given) == len(set(given)), "given twice"
        return set(given)

    def _memories(self) -> int:
        return int(json.loads(self.house.upwell("stats", "--json"))["memories"])


def running(house: House) -> int:
    """The pid of the current daemon, which may have replaced an earlier one."""
    assert house.daemon_answers()
    daemon = daemon_at(str(house.home))
    assert daemon is not None
    return daemon.pid


def test_clients_killed_at_random_moments(house: House) -> None:
    drill, rng = Drill(house, "killed"), random.Random(18)
    for number in range(NOTES):
        process = drill.client(number)
        time.sleep(rng.uniform(0.0, 0.12))
        process.kill()
        drill.collect(number, process)
    assert 0 < len(drill.received) < NOTES, "the moments must straddle the answer"
    drill.check()


def test_a_daemon_stopped_for_a_second_in_mid_answer(house: House) -> None:
    drill, rng = Drill(house, "stopped"), random.Random(18)
    for number in range(NOTES):
        process = drill.client(number)
        if number % 4 == 0:
            time.sleep(rng.uniform(0.0, 0.1))
            # Another hook may take a stopped daemon for a hung one, and replace it.
            with contextlib.suppress(ProcessLookupError):
                daemon = running(house)
                os.kill(daemon, signal.SIGSTOP)
                time.sleep(1.0)
                os.kill(daemon, signal.SIGCONT)
        drill.collect(number, process)
    assert drill.received
    drill.check()


def test_many_events_at_once(house: House) -> None:
    drill = Drill(house, "load")
    for first in range(0, NOTES, 16):
        numbers: Sequence[int] = range(first, first + 16)
        processes = [drill.client(number) for number in numbers]
        for number, process in zip(numbers, processes, strict=True):
            drill.collect(number, process)
    assert not drill.unclear
    drill.check()


def test_a_host_that_closed_its_end_received_nothing(house: House) -> None:
    drill = Drill(house, "closed")
    event = HOSTS["claude"].tool(str(house.project), house.file(file_of(0)))
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *QUICK, "claude"],
        input=json.dumps({**event, "session_id": drill.session}).encode(),
        env=house.environment,
        timeout=20,
    )
    assert done.returncode == 0
    drill.check()
