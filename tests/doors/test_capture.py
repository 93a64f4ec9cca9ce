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
    payload = {"type": "user", "message": {"role": "user", "content": RULE}}
    transcript.write_text(json.dumps(payload) + "\n")
    event = claude_like("s", str(house.project), "Stop", stop_hook_active=False)
    assert house.hook("claude", event={**event, "transcript_path": str(transcript)}).json == {}


def ran(house: House, *commands: tuple[str, bool]) -> None:
    """The end of a turn in which these commands ran; each with whether it failed."""
    lines = []
    for number, (command, failed) in enumerate(commands):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "is_error": failed}
        called = {"role": "assistant", "content": [{**call, "input": {"command": command}}]}
        lines += [{"type": "assistant", "message": called}]
        lines += [{"type": "user", "message": {"role": "user", "content": [back]}}]
    transcript = house.project.parent / "session.jsonl"
    transcript.write_text("\n".join(map(json.dumps, lines)))
    event = claude_like("s7", str(house.project), "Stop", stop_hook_active=False)
    house.hook("claude", event={**event, "transcript_path": str(transcript)})


def waiting(house: House, least: int) -> list[dict[str, str]]:
    deadline = time.monotonic() + 15
    while True:
        proposals = json.loads(house.upwell("inbox", "--json"))["proposals"]
        if len(proposals) >= least or time.monotonic() > deadline:
            return proposals
        time.sleep(0.2)


def test_nothing_is_captured_without_consent(house: House) -> None:
    house.start()
    stop(house)
    house.stop()
    assert not (house.home / "inbox.json").exists()


def test_a_rule_is_proposed_and_stored_only_when_accepted(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    stop(house)
    (proposals,) = waiting(house, 1)
    assert proposals["text"] == RULE
    assert "generated clients" not in house.upwell("recall", "generated clients")
    assert house.upwell("inbox", "accept", proposals["id"]).startswith("1 memory stored")
    assert "generated clients" in house.upwell("recall", "generated clients")
    assert waiting(house, 0) == []
    stop(house)
    house.upwell("hook", "capture", "off")
    assert "capture = false" in (house.home / "config.toml").read_text()
    assert waiting(house, 0) == []


def test_a_command_that_worked_is_proposed_without_its_secret(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    ran(
        house,
        ("pytest tests/tide", True),
        ("uv run pytest tests/tide", False),
        ("make deploy-check", True),
        (f"make deploy-check TOKEN={secret}", False),
    )
    proposals = {entry["text"]: entry for entry in waiting(house, 2)}
    first = proposals["`uv run pytest tests/tide` works here; `pytest tests/tide` fails."]
    assert (first["why"], first["session"], first["source"]) == (
        "command that worked",
        "s7",
        "session:s7",
    )
    assert first["project"] == str(house.project)
    assert len(proposals) == 2
    assert secret not in (house.home / "inbox.json").read_text()
    assert "uv run pytest" not in house.upwell("recall", "how to run pytest tests tide")
    house.upwell("inbox", "accept", first["id"])
    assert "uv run pytest" in house.upwell("recall", "how to run pytest tests tide")
