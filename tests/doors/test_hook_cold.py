"""The first event of a home, while no daemon is running: the hook starts one, and only a session's
start and a prompt wait for it."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import PATIENCE, House
from upwell.hook.client import COLD_SECONDS

EXPORT = "The nightly invoice export moved to bucket harbour-seven in March"
REAL_DEADLINES = dict.fromkeys(PATIENCE)
"""Removes the variables of `PATIENCE`, so that the defaults hold."""
START_OF_PYTHON_SECONDS = 3.0
"""Allowance for starting a process on a busy machine."""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    words = "oak elm ash fir yew bay fig nut gum box plum pear lime kiwi date palm".split()
    notes = [{"text": f"Note about {word} trees and their bark"} for word in words]
    teak = {"text": "Teak tables are oiled in batches of nine", "paths": ["src/teak.py"]}
    house.keep([{"id": "invoice", "text": EXPORT}, teak, *notes])
    yield house
    house.stop()


def prompt(house: House, session: str = "s1") -> Mapping[str, Any]:
    of_claude = HOSTS["claude"].prompt
    assert of_claude is not None
    text = "Where did the nightly invoice export move?"
    return {**of_claude(str(house.project), text), "session_id": session}


def test_the_first_prompt_starts_the_daemon_and_gets_its_answer(house: House) -> None:
    assert EXPORT in str(house.hook("claude", event=prompt(house)).json)
    assert house.daemon_answers()
    assert EXPORT not in str(house.hook("claude", event=prompt(house)).json), "it was delivered"


def test_a_tool_starts_the_daemon_and_does_not_wait_for_it(house: House) -> None:
    read = HOSTS["claude"].tool(str(house.project), house.file("teak.py"))
    assert house.hook("claude", event=read).json == {}
    assert house.daemon_answers()
    assert "batches of nine" in str(house.hook("claude", event=read).json)


@pytest.mark.parametrize(
    ("env", "seconds"),
    [(REAL_DEADLINES, COLD_SECONDS), ({**REAL_DEADLINES, "UPWELL_HOOK__COLD_MS": "100"}, 0.1)],
    ids=["default", "shorter"],
)
def test_a_prompt_waits_until_its_deadline_at_most(
    house: House, env: Mapping[str, str | None], seconds: float
) -> None:
    """Another process is starting a daemon that never answers."""
    starting = Path(house.place.starting)
    starting.parent.mkdir(mode=0o700, exist_ok=True)
    starting.touch()
    try:
        answer = house.hook("claude", event=prompt(house), env=env)
    finally:
        starting.unlink()
    assert answer.json == {}
    assert answer.seconds < seconds + START_OF_PYTHON_SECONDS
    if seconds == COLD_SECONDS:
        assert answer.seconds > seconds - 0.1, "it did not wait"


def test_a_daemon_that_cannot_start_does_not_delay_a_prompt(house: House) -> None:
    (house.home / "config.toml").write_text("[surface\n")
    began = time.monotonic()
    assert house.hook("claude", event=prompt(house)).json == {}
    assert time.monotonic() - began < 7.0, "it waited for the whole deadline of eight seconds"


def test_a_prompt_does_not_wait_after_a_failed_start(house: House) -> None:
    starting = Path(house.place.starting)
    starting.parent.mkdir(mode=0o700, exist_ok=True)
    starting.touch()
    ten_seconds_ago = time.time() - 10
    os.utime(starting, (ten_seconds_ago, ten_seconds_ago))
    answer = house.hook("claude", event=prompt(house))
    starting.unlink()
    assert answer.json == {}
    assert answer.seconds < START_OF_PYTHON_SECONDS
