"""Copilot CLI's events in the shapes that version 1.0.102 writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay import samples

from upwell.episodes.events import SessionEvent
from upwell.replay.transcripts import format_named
from upwell.replay.transcripts.base import ReadTally


def event(kind: str, /, agent: str | None = None, **data: Any) -> dict[str, Any]:
    record = {"type": kind, "data": data, "id": "1", "timestamp": "2026-01-05T13:00:00Z"}
    return record | ({"agentId": agent} if agent else {})


def call(name: str, args: Any, /, **complete: Any) -> list[dict[str, Any]]:
    start = event("tool.execution_start", toolCallId="k", toolName=name, arguments=args)
    end = {"toolCallId": "k", "success": True, **complete}
    return [start, event("tool.execution_complete", **end)]


def read(
    folder: Path, *records: Mapping[str, Any], tally: ReadTally | None = None
) -> list[SessionEvent]:
    head = event("session.start", sessionId=samples.SESSION, copilotVersion="1.0.102")
    path = samples.lines(folder / samples.SESSION / "events.jsonl", [head, *records])
    return list(format_named("copilot").read(path, 0, tally or ReadTally()))[1:-1]


@pytest.mark.parametrize(
    ("facts", "failed"),
    [
        ({"shellExecution": {"exitCode": 3}}, True),
        ({"shellExecution": {"exitCode": 0}, "result": {"content": "exit code 3>"}}, False),
        ({"result": {"content": "no rule\n<shellId: 0 completed with exit code 2>"}}, True),
        ({"result": {"content": "ok\n<shellId: 0 completed with exit code 0>"}}, False),
        ({"result": {"content": "<command started in background with shellId: 0>"}}, False),
        ({"success": False, "error": {"message": "no shell"}}, True),
    ],
)
def test_the_exit_status_says_whether_a_command_failed(
    tmp_path: Path, facts: dict[str, Any], failed: bool
) -> None:
    (found,) = read(tmp_path, *call("bash", {"command": "make"}, **facts))
    assert (found.tool, found.failed) == ("Bash", failed)


def test_the_output_of_a_command_is_read_later(tmp_path: Path) -> None:
    later = {"content": "no rule\n<shellId: 0 completed with exit code 2>"}
    (shell,) = read(tmp_path, *call("read_bash", {"shellId": "0"}, result=later))
    (file,) = read(tmp_path, *call("view", {"path": "/code/log"}, result=later))
    assert (shell.failed, file.failed) == (True, False)


def test_a_call_that_the_user_refused_did_not_happen(tmp_path: Path) -> None:
    refused = {"success": False, "error": {"message": "The user said no", "code": "rejected"}}
    assert read(tmp_path, *call("bash", {"command": "rm -r dock"}, **refused)) == []


def test_what_hooks_add_to_a_result_is_left_out(tmp_path: Path) -> None:
    added = '\n\nTool "view" succeeded. Additional guidance from postToolUse hooks:\na memory'
    result = {"content": f"def gauge(): ...{added}"}
    (found,) = read(tmp_path, *call("view", {"path": "/code/gauge.py"}, result=result))
    assert found.out == "def gauge(): ..."


def test_only_the_users_own_messages_are_prompts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        event("user.message", content="Find the mooring", transformedContent="<reminder>x"),
        event("user.message", content="Look", agent="4a1ecdb1"),
        event("assistant.message", content="I looked.", agent="4a1ecdb1"),
        event("user.message", content="Always paint", source="skill-tides"),
        event("user.message", content="Measure", source="agent-7"),
        event("user.message", content="Go on", isAutopilotContinuation=True),
        event("user.message", content="Hello", inputOrigin="authenticated-cross-session"),
        event("system.notification", content="Shell 0 ended"),
        event("skill.invoked", name="tides", content="Always paint"),
        event("session.resume", context={"cwd": "/code/harbour"}),
        event("user.message", content="And the buoy?"),
    )
    assert [entry.text for entry in found] == ["Find the mooring", "And the buoy?"]
    assert found[-1].cwd == "/code/harbour"


def test_the_version_and_unknown_records_are_noted(tmp_path: Path) -> None:
    tally = ReadTally()
    read(tmp_path, event("hook.start"), event("session.teleported"), tally=tally)
    assert (tally.version, tally.records) == ("1.0.102", 3)
    assert tally.unknown == {"session.teleported": 1}
