"""Capture through the real hook, with consent; the inbox and history on the command line."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hook_events import claude_like, recorded
from tests.doors.hooked import House

RULE = "Never edit generated clients by hand."


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    yield house
    house.stop()


def record(house: House, role: str, content: object) -> dict[str, object]:
    entry = {"type": role, "sessionId": "s7", "cwd": str(house.project)}
    return entry | {"message": {"role": role, "content": content}}


def end_turn(house: House, records: list[dict[str, object]]) -> None:
    transcript = house.project.parent / "session.jsonl"
    transcript.write_text("\n".join(map(json.dumps, records)) + "\n")
    event = claude_like("s7", str(house.project), "Stop", stop_hook_active=False)
    assert house.hook("claude", event={**event, "transcript_path": str(transcript)}).json == {}


def stop(house: House) -> None:
    end_turn(house, [record(house, "user", RULE)])


def ran(house: House, *commands: tuple[str, str]) -> list[dict[str, object]]:
    """The records of these commands; each with its error, "" for one that worked."""
    records = []
    for number, (command, error) in enumerate(commands):
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "is_error": bool(error)}
        records += [
            record(house, "assistant", [call | {"input": {"command": command}}]),
            record(house, "user", [back | {"content": error or "done"}]),
        ]
    return records


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


def test_a_rule_of_a_copilot_session_is_proposed(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    folder = house.project.parent / "user" / ".copilot" / "session-state" / "c1"
    folder.mkdir(parents=True)
    start = {"sessionId": "c1", "context": {"cwd": str(house.project)}}
    records = [("session.start", start), ("user.message", {"content": RULE})]
    lines = [
        json.dumps({"type": kind, "data": data, "timestamp": "2026-11-21T10:00:00Z"})
        for kind, data in records
    ]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    event = recorded("copilot", "agentStop", str(house.project))
    own = {"sessionId": "c1", "transcriptPath": str(folder / "events.jsonl")}
    named = {key: event[key] for key in event if key not in ("agentId", "agentType")}
    assert house.hook("copilot", "agentStop", event={**named, **own}).json == {}
    (proposals,) = waiting(house, 1)
    assert proposals["text"] == RULE


def test_a_rule_is_proposed_and_stored_only_when_accepted(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    stop(house)
    (proposals,) = waiting(house, 1)
    assert proposals["text"] == RULE
    assert "generated clients" not in house.upwell("rules")
    assert house.upwell("inbox", "accept", proposals["id"]).startswith("1 memory stored")
    assert "generated clients" in house.upwell("rules")
    assert waiting(house, 0) == []
    stop(house)
    house.upwell("hook", "capture", "off")
    assert "capture = false" in (house.home / "config.toml").read_text()
    assert waiting(house, 0) == []


NO_LID = "Exit code 2\nerror: the option --lid is required"
NO_KEY = "Exit code 2\nerror: the option --key is required"


def test_a_command_that_worked_is_proposed_without_its_secret(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    bread = ran(house, ("bake bread", NO_LID), ("bake bread --lid", ""))
    end_turn(house, [*bread, *ran(house, ("ship it", NO_KEY), (f"ship it --key {secret}", ""))])
    (first, *_) = waiting(house, 2)
    assert "`bake bread --lid` works" in first["text"]
    assert (first["why"], first["session"]) == ("command that worked", "s7")
    assert first["project"] == str(house.project)
    assert secret not in (house.home / "inbox.json").read_text()
    assert "bake bread" not in house.upwell("recall", "how to bake bread")
    house.upwell("inbox", "accept", first["id"])
    assert "bake bread --lid" in house.upwell("recall", "how to bake bread")


def test_the_next_session_that_meets_the_error_hears_the_command_that_worked(
    house: House,
) -> None:
    transcript = house.project.parent / "old.jsonl"
    records = ran(house, ("bake bread", NO_LID), ("bake bread --lid", ""))
    transcript.write_text("\n".join(map(json.dumps, records)))
    told = house.upwell("learn", "sessions", str(transcript))
    assert told.startswith("1 transcript: 1 new proposal")
    told = house.upwell("learn", "sessions", str(transcript))
    assert told.startswith("0 new transcripts (1 read before): 0 new proposals")
    house.upwell("inbox", "accept", "--all")
    house.start()
    failure = {"tool_name": "Bash", "tool_input": {"command": "bake bread"}, "error": NO_LID}
    event = claude_like("s8", str(house.project), "PostToolUseFailure", **failure)
    context = house.hook("claude", event=event).json["hookSpecificOutput"]["additionalContext"]
    assert "`bake bread --lid` works" in context
    assert house.hook("claude", event=event).json == {}
    assert 'the error "error: the option --lid is required"' in house.upwell("explain")


def test_a_later_session_gets_the_state_in_which_this_one_left_its_work(house: House) -> None:
    house.upwell("hook", "capture", "on")
    house.start()
    said = {"type": "text", "text": "A shell blocked the inlet; `pump.py` now has a filter."}
    records = [
        record(house, "user", "The harbour pump stalls at low tide"),
        record(house, "assistant", [said]),
    ]
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - 60))
    end_turn(house, [entry | {"timestamp": now} for entry in records])
    transcript = str(house.project.parent / "session.jsonl")
    event = claude_like("s7", str(house.project), "SessionEnd", reason="exit")
    house.hook("claude", event={**event, "transcript_path": transcript})
    deadline, text, number = time.monotonic() + 15, "", 0
    while "blocked the inlet" not in text and time.monotonic() < deadline:
        number += 1
        prompt = "Why does the harbour pump stall again at low tide?"
        asked = claude_like(f"later{number}", str(house.project), "UserPromptSubmit", prompt=prompt)
        text = json.dumps(house.hook("claude", event=asked).json, ensure_ascii=False)
        time.sleep(0.1)
    assert "1 minute ago a session (claude) was asked" in text
    assert "A shell blocked the inlet" in text
