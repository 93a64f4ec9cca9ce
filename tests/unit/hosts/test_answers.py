"""The answer of a failed command, as each host reports it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from upwell.ground.types.cue import ToolAnswer
from upwell.hosts import HOSTS
from upwell.hosts.events import answer_of

ERROR = "error: unknown option '--warm'"
BASH = {"tool_name": "Bash", "tool_input": {"command": "bake --warm"}}
SHELL = {"tool_name": "run_shell_command", "tool_input": {"command": "bake --warm"}}
FAILED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "claude": ("PostToolUseFailure", BASH | {"error": f"Exit code 2\n{ERROR}"}),
    "codex": ("PostToolUse", BASH | {"tool_response": f"Exit code: 2\nOutput:\n{ERROR}"}),
    "gemini": (
        "AfterTool",
        SHELL | {"tool_response": {"llmContent": f"Output: {ERROR}\nExit Code: 2"}},
    ),
    "cursor": (
        "postToolUse",
        {"tool_name": "Shell", "tool_input": {"command": "bake --warm"}}
        | {"tool_output": f'{{"output":"{ERROR}","exitCode":2}}'},
    ),
    "copilot": (
        "postToolUseFailure",
        {"toolName": "bash", "toolArgs": {"command": "bake --warm"}, "error": ERROR},
    ),
}


def answer(host: str, name: str, payload: Mapping[str, Any]) -> ToolAnswer:
    event = HOSTS[host].events.read(name, payload)
    assert event is not None
    assert event.tool == "Bash"
    assert event.answer is not None
    return event.answer


@pytest.mark.parametrize("host", sorted(FAILED))
def test_a_failed_command_comes_with_its_answer(host: str) -> None:
    name, payload = FAILED[host]
    failed = answer(host, name, {"hook_event_name": name, **payload})
    assert failed.failed is True
    assert ERROR in failed.text


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ("Process exited with code 0\nOutput:\nok", False),
        ({"stdout": "ok", "exit_code": 1}, True),
        ({"stdout": "ok", "exit_code": True}, None),
        ("the code of the exit door is 12", None),
        ("x" * 1_000 + " exit code: 1 " + "x" * 1_000, None),
    ],
)
def test_an_exit_status_tells_whether_a_command_failed(result: object, failed: bool | None) -> None:
    tool_answer = answer_of(result, tool="Bash")
    assert tool_answer is not None
    assert tool_answer.failed is failed
    read = answer_of(result, tool="Read")
    assert read is not None
    assert read.failed is None


def test_the_exit_status_of_copilot_is_in_the_last_line() -> None:
    for text, failed in (
        (f"{ERROR}\n<shellId: 0 completed with exit code 3>", True),
        ("exit code: 1 means failure\n<shellId: 12 completed with exit code 0>\n", False),
        ("ok", None),
    ):
        result = {"resultType": "success", "textResultForLlm": text}
        payload = {"toolName": "bash", "toolArgs": {"command": "bake"}, "toolResult": result}
        assert answer("copilot", "postToolUse", payload).failed is failed


def test_the_exit_status_of_opencode_is_in_the_event() -> None:
    payload = {"tool_name": "bash", "args": {"command": "bake"}, "output": "exit code: 1"}
    for more, failed in (({"exit": 0}, False), ({"failed": True}, True), ({}, True)):
        assert answer("opencode", "tool.execute.after", payload | more).failed is failed


@pytest.mark.parametrize(("status", "failed"), [(3, True), (0, False), (None, None)])
def test_the_exit_status_of_codex_is_in_its_transcript(
    tmp_path: Path, status: int | None, failed: bool | None
) -> None:
    def record(call: str, **item: object) -> str:
        done = {"type": "CommandExecution", "id": call, "aggregated_output": "x\n" * 9, **item}
        return json.dumps(
            {"type": "event_msg", "payload": {"type": "item_completed", "item": done}}
        )

    transcript = tmp_path / "rollout.jsonl"
    transcript.write_text("\n".join([record("call_0", exit_code=1), record("call_1")]))
    if status is not None:
        last = [record("call_1", exit_code=status), json.dumps({"call_id": "call_1"})]
        transcript.write_text("\n".join([record("call_0", exit_code=1), *last]))
    payload = BASH | {"tool_response": ERROR, "tool_use_id": "call_1"}
    recorded = payload | {"transcript_path": str(transcript)}
    assert answer("codex", "PostToolUse", recorded).failed is failed
    for path in ("", "relative", str(tmp_path), str(tmp_path / "gone"), "/p\0q", 5):
        elsewhere = payload | {"transcript_path": path}
        assert answer("codex", "PostToolUse", elsewhere).failed is None


@pytest.mark.parametrize(("host", "name"), [("claude", "PostToolUse"), ("gemini", "AfterTool")])
def test_a_command_that_its_host_reports_without_an_error_has_worked(host: str, name: str) -> None:
    tool = {"claude": "Bash", "gemini": "run_shell_command"}[host]
    payload = {"tool_name": tool, "tool_input": {"command": "bake"}, "tool_response": {"out": "ok"}}
    assert answer(host, name, payload).failed is False
