"""Which results may be shortened."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from upwell.hook.door import _cue
from upwell.hook.tool_output import may_shorten
from upwell.hosts import HOSTS

CALL = {"tool_name": "Bash", "tool_input": {"command": "make"}}


def payloads(folder: Path, status: int) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """The event of a command with this exit status, as each host sends it."""
    item = {"type": "CommandExecution", "id": "c1", "exit_code": status}
    transcript = folder / "rollout.jsonl"
    transcript.write_text(json.dumps({"payload": {"item": item}}) + "\n")
    record = {"tool_use_id": "c1", "transcript_path": str(transcript)}
    result = {
        "resultType": "success",
        "textResultForLlm": f"out\n<shellId: 0 completed with exit code {status}>",
    }
    return {
        "claude": ("PostToolUse", CALL | {"tool_response": {"stdout": "", "exitCode": status}}),
        "codex": ("PostToolUse", CALL | record | {"tool_response": "out"}),
        "copilot": (
            "postToolUse",
            {"toolName": "bash", "toolArgs": {"command": "make"}, "toolResult": result},
        ),
        "opencode": (
            "tool.execute.after",
            {"tool_name": "bash", "args": {"command": "make"}, "output": "x", "exit": status},
        ),
    }


@pytest.mark.parametrize("host", ["claude", "codex", "copilot", "opencode"])
@pytest.mark.parametrize("status", [0, 3])
def test_the_output_of_a_failed_command_stays_whole(tmp_path: Path, host: str, status: int) -> None:
    name, payload = payloads(tmp_path, status)[host]
    event = HOSTS[host].events.read(name, payload)
    assert event is not None
    assert may_shorten(event, _cue(event, host)) is (status == 0)
