"""The answer of a failed command, as each host reports it."""

from collections.abc import Mapping
from typing import Any

import pytest

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


@pytest.mark.parametrize("host", sorted(FAILED))
def test_a_failed_command_comes_with_its_answer(host: str) -> None:
    name, payload = FAILED[host]
    event = HOSTS[host].events.read(name, {"hook_event_name": name, **payload})
    assert event is not None
    assert event.tool == "Bash"
    assert event.answer is not None
    assert event.answer.failed is True
    assert ERROR in event.answer.text


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ("Process exited with code 0\nOutput:\nok", False),
        ({"stdout": "ok", "exit_code": 1}, True),
        ({"stdout": "ok", "exit_code": True}, None),
        ("the code of the exit door is 12", None),
        ("x" * 1_000 + " exit code: 1 " + "x" * 1_000, None),
    ],
)
def test_an_exit_status_tells_whether_a_command_failed(answer: object, failed: bool | None) -> None:
    tool_answer = answer_of(answer, tool="Bash")
    assert tool_answer is not None
    assert tool_answer.failed is failed
    read = answer_of(answer, tool="Read")
    assert read is not None
    assert read.failed is None
