"""Drill: the clock of the machine jumps hours back or a year ahead, and is right again later. The
daemon runs all the time, and commands run at each time."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import Done, Upwell

WRONG_CLOCK = """
import datetime, os, time

right, right_ns = time.time, time.time_ns


def ahead():
    with open(os.environ["WRONG_CLOCK"]) as file:
        return float(file.read())


time.time = lambda: right() + ahead()
time.time_ns = lambda: right_ns() + int(ahead() * 1e9)


class WrongDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)


datetime.datetime = WrongDatetime
"""
HOUR, YEAR = 3_600.0, 365 * 86_400.0
RULE = "Push to main only after a review"
FACTS = {
    "When does the harbour gate open in the morning?": "The harbour gate opens at dawn",
    "Who may steer the southern crane?": "The southern crane obeys Ada alone",
    "Which dredger works on Thursdays?": "Dredger Otter clears silt on Thursdays",
}


class Machine:
    def __init__(self, folder: Path, environment: Mapping[str, str], upwell: Upwell) -> None:
        self._offset = folder / "offset"
        startup = folder / "startup"
        startup.mkdir()
        (startup / "sitecustomize.py").write_text(WRONG_CLOCK)
        self._upwell = upwell
        self._wrong = {"PYTHONPATH": str(startup), "WRONG_CLOCK": str(self._offset)}
        self._environment = {**environment, **self._wrong}
        self._project = folder / "project"
        (self._project / ".git").mkdir(parents=True)
        self.set_clock(0)

    def set_clock(self, ahead: float) -> None:
        temporary = self._offset.with_suffix(".new")
        temporary.write_text(str(ahead))
        os.replace(temporary, self._offset)

    def run(self, *args: str) -> Done:
        return self._upwell(*args, env=self._wrong, cwd=self._project)

    def told(self, session: str, event: str, **fields: str) -> str:
        """What the agent is told at an event."""
        payload = {
            "session_id": session,
            "cwd": str(self._project),
            "hook_event_name": event,
            **fields,
        }
        done = subprocess.run(
            [sys.executable, "-m", "upwell", "hook", "claude"],
            input=json.dumps(payload).encode(),
            env=self._environment,
            capture_output=True,
            timeout=60,
        )
        return done.stdout.decode()


@pytest.mark.parametrize("jump", [YEAR, -6 * HOUR], ids=["a year ahead", "six hours back"])
def test_a_clock_that_jumps_and_is_set_right_costs_nothing(
    tmp_path: Path, environment: Mapping[str, str], upwell: Upwell, jump: float
) -> None:
    machine = Machine(tmp_path, environment, upwell)
    for fact in FACTS.values():
        assert machine.run("remember", fact).code == 0
    machine.run("remember", "--pin", RULE)
    forgotten = machine.run("remember", "Buoys are repainted in May").line
    machine.run("forget", forgotten)
    machine.run("remember", "--ttl", "60d", "The lantern is lit until spring")
    machine.run("stm", "add", "the kettle note of yesterday")
    try:
        assert RULE in machine.told("one", "SessionStart", source="startup")
        machine.set_clock(jump)
        for session, fact in zip(("one", "two"), FACTS.values(), strict=False):
            question = next(q for q in FACTS if FACTS[q] == fact)
            assert fact in machine.told(session, "UserPromptSubmit", prompt=question)
        assert machine.run("remember", "Otters sleep in the silt").code == 0
        assert machine.run("backup").code == 0
        machine.set_clock(0)
        question, fact = list(FACTS.items())[2]
        assert fact in machine.told("two", "UserPromptSubmit", prompt=question)
        assert RULE in machine.told("three", "SessionStart", source="startup")
    finally:
        machine.run("daemon", "stop")
    for query in ("dawn", "Ada", "Thursdays", "otters silt", "lantern", "kettle"):
        assert machine.run("recall", query, "--json").json["hits"], query
    assert machine.run("restore", forgotten).code == 0
    assert RULE in machine.run("rules").out
    assert machine.run("doctor").code == 0
