"""A guard refuses a call once: through the real hooks of every host that lets a hook refuse, and
through the gateway."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import Gateway, script
from tests.doors.hook_events import claude_like, codex, cursor, gemini
from tests.doors.hooked import House
from tests.doors.peer import text_of

Payload = dict[str, Any]
TEXT = "Ask before the shared branch is rewritten"
SAFE, FORCED = "git push origin main", "cd web && git push --force origin main"


def shell(**fields: Any) -> dict[str, Any]:
    return {"tool_use_id": "t1", **fields}


def nested(answer: Mapping[str, Any]) -> str:
    (output,) = answer.values()
    assert set(answer) == {"hookSpecificOutput"}
    reason = output.pop("permissionDecisionReason")
    assert output == {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
    return str(reason)


def denied(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"decision", "reason"}
    assert answer["decision"] == "deny"
    return str(answer["reason"])


def forbidden(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"permission", "user_message", "agent_message"}
    assert answer["permission"] == "deny"
    return str(answer["agent_message"])


def flat(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"permissionDecision", "permissionDecisionReason"}
    assert answer["permissionDecision"] == "deny"
    return str(answer["permissionDecisionReason"])


Event = Callable[[str, str], Payload]
HOSTS: dict[str, tuple[list[str], Event, Callable[[Mapping[str, Any]], str]]] = {
    "claude": (
        [],
        lambda cwd, command: claude_like(
            "c", cwd, "PreToolUse", **shell(tool_name="Bash", tool_input={"command": command})
        ),
        nested,
    ),
    "codex": (
        [],
        lambda cwd, command: {
            **codex(cwd, "PostToolUse", tool_name="Bash", tool_input={"command": command}),
            "hook_event_name": "PreToolUse",
        },
        nested,
    ),
    "vscode": (
        [],
        lambda cwd, command: claude_like(
            "v", cwd, "PreToolUse", tool_name="run_in_terminal", tool_input={"command": command}
        ),
        nested,
    ),
    "gemini": (
        [],
        lambda cwd, command: {
            **gemini(cwd, "AfterTool", tool_name="run_shell_command"),
            "hook_event_name": "BeforeTool",
            "tool_input": {"command": command, "description": "Push"},
        },
        denied,
    ),
    "cursor": (
        [],
        lambda cwd, command: cursor(cwd, "beforeShellExecution", command=command),
        forbidden,
    ),
    "copilot": (
        ["preToolUse"],
        lambda cwd, command: {
            "sessionId": "cop",
            "timestamp": 0,
            "cwd": cwd,
            "toolName": "bash",
            "toolArgs": {"command": command},
        },
        flat,
    ),
}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("house"))
    made.upwell("rules", "add", "--guard", TEXT, "--tool", "Bash(git push*--force*)")
    made.start()
    yield made
    made.stop()


def answer(house: House, host: str, command: str) -> dict[str, Any]:
    args, event, _ = HOSTS[host]
    return house.hook(host, *args, event=event(str(house.project), command)).json


@pytest.mark.parametrize("host", HOSTS)
def test_the_command_is_refused_once_and_then_passes(house: House, host: str) -> None:
    assert answer(house, host, SAFE) == {}
    reason = HOSTS[host][2](answer(house, host, FORCED))
    assert TEXT in reason
    assert "repeat the call" in reason
    assert answer(house, host, FORCED) == {}


def test_a_refusal_is_explained_and_the_rule_is_listed_as_a_guard(house: House) -> None:
    _, event, _ = HOSTS["claude"]
    fresh = {**event(str(house.project), FORCED), "session_id": "explained"}
    assert "deny" in json.dumps(house.hook("claude", event=fresh).json)
    (row,) = json.loads(house.upwell("rules", "--json"))["rules"]
    assert (row["guard"], row["paused"], row["tools"]) == (True, False, ["Bash(git push*--force*)"])
    assert "\tguard\t" in house.upwell("rules")
    told = house.upwell("explain", "-n", "20")
    assert f"refused by one of your guards, once in this session (rule {row['id']})" in told


def test_nothing_is_refused_while_upwell_is_off_or_no_daemon_runs(tmp_path: Path) -> None:
    house = House(tmp_path / "off")
    house.upwell("rules", "add", "--guard", TEXT, "--tool", "Bash(git push*--force*)")
    assert answer(house, "claude", FORCED) == {}, "no daemon: the call passes"
    try:
        assert house.daemon_answers(), "the hook starts a daemon for the next call"
        house.upwell("off")
        assert answer(house, "claude", FORCED) == {}
        house.upwell("on")
        assert "deny" in json.dumps(answer(house, "claude", FORCED))
    finally:
        house.stop()


def test_the_hook_before_a_tool_is_installed_only_for_a_guard(tmp_path: Path) -> None:
    house = House(tmp_path / "install")
    settings = tmp_path / "install" / "user" / ".claude" / "settings.json"
    settings.parent.mkdir()
    house.upwell("hook", "install", "claude", "--apply")
    assert "PreToolUse" not in json.loads(settings.read_text())["hooks"]
    guard, remark = house.both("rules", "add", "--guard", TEXT, "--tool", "Bash(rm -rf*)")
    assert remark.strip() == (
        "upwell: This guard does nothing in claude until you run: upwell hook install claude "
        "--apply"
    )
    house.upwell("hook", "install", "claude", "--apply")
    (entry,) = json.loads(settings.read_text())["hooks"]["PreToolUse"]
    assert entry["matcher"] == "Bash|mcp__.*"
    house.upwell("rules", "remove", guard.strip())
    house.upwell("hook", "install", "claude", "--apply")
    assert "PreToolUse" not in json.loads(settings.read_text())["hooks"]


def test_wrong_usage_is_one_line(house: House) -> None:
    assert "a guard needs a command" in house.refused("rules", "add", "--guard", "Be careful")
    refused = house.refused("rules", "add", "--guard", "Be careful", "--path", "src/**")
    assert "a guard cannot refuse by --path alone" in refused


def test_the_gateway_refuses_a_tool_once(gateway: Gateway, upwell: Upwell, tmp_path: Path) -> None:
    upwell("rules", "add", "--everywhere", "--guard", TEXT, "--tool", "notes__echo")
    peer = gateway({"notes": script("upstream", "--state", ".")})
    peer.wait_for_tools("notes__echo")
    first = peer.call("notes__echo", text="hello")
    assert first["isError"]
    assert TEXT in text_of(first)
    assert "hello" in json.dumps(peer.call("notes__echo", text="hello"))
