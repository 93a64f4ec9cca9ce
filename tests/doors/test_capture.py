"""Capture through the real hook, with consent; the inbox and history on the command line."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import claude_like
from tests.doors.hooked import House

RULE = "Never edit generated clients by hand."


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    yield house
    house.stop()


def stop(house: House) -> None:
    transcript = house.project.parent / "session.jsonl"
    said = {"type": "user", "message": {"role": "user", "content": RULE}}
    transcript.write_text(json.dumps(said) + "\n")
    event = claude_like("s", str(house.project), "Stop", stop_hook_active=False)
    assert house.hook("claude", event={**event, "transcript_path": str(transcript)}).json == {}


def waiting(house: House, least: int) -> list[dict[str, str]]:
    until = time.monotonic() + 15
    while True:
        found = json.loads(house.upwell("inbox", "--json"))["proposals"]
        if len(found) >= least or time.monotonic() > until:
            return found
        time.sleep(0.2)


def test_nothing_is_captured_without_consent(house: House) -> None:
    house.start()
    stop(house)
    house.stop()
    assert not (house.home / "inbox.json").exists()


def test_a_rule_is_proposed_and_kept_only_when_accepted(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    stop(house)
    (found,) = waiting(house, 1)
    assert found["text"] == RULE
    assert "generated clients" not in house.upwell("recall", "generated clients")
    assert house.upwell("inbox", "accept", found["id"]).startswith("1 memories kept")
    assert "generated clients" in house.upwell("recall", "generated clients")
    assert waiting(house, 0) == []
    stop(house)
    house.upwell("hook", "capture", "off")
    assert "capture = false" in (house.home / "config.toml").read_text()
    assert waiting(house, 0) == []
