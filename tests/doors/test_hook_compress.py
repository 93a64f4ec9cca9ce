"""`hook.compress` through the real executable and a real daemon: answers of built-in tools come
back shorter, in their own shape, and the original can be read by its key."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import HOSTS, claude_like, cursor
from tests.doors.hooked import House

LINES = [f"12:{n % 60:02d} worker-{n % 7} took job {n * 7919 % 10007}" for n in range(1500)]
LONG = "\n".join([*LINES, "FAILED tests/test_tide.py::test_gauge - AssertionError: 3 != 4"])
NODE = Path(sys.executable).with_name("node")
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
KEY = re.compile(r'key="([0-9a-f]{16})"')
CONFIG = 'hook.compress = ["claude", "codex", "copilot", "cursor", "opencode"]\n'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("compress"))
    about = {"id": "gauge", "text": "Tide gauges report in metres", "paths": ["src/gauge.py"]}
    house.keep([about, *({"text": f"A note about {word}"} for word in ("rope", "sail", "mast"))])
    (house.home / "config.toml").write_text(CONFIG)
    house.start()
    yield house
    house.stop()


@dataclass(frozen=True)
class Case:
    """The event of a long answer, and the expected output: `text` extracts the replacement and
    checks the shape around it."""

    args: list[str]
    event: Callable[[str, str], Mapping[str, Any]]
    text: Callable[[Mapping[str, Any]], str]


def bash(cwd: str, out: str) -> dict[str, Any]:
    return claude_like(
        "8f14e45f",
        cwd,
        "PostToolUse",
        tool_name="Bash",
        tool_input={"command": "make test", "description": "Run the tests"},
        tool_response={
            "stdout": out,
            "stderr": "",
            "interrupted": False,
            "isImage": False,
            "noOutputExpected": False,
        },
        tool_use_id="toolu_01",
        duration_ms=812,
    )


def bash_text(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"hookSpecificOutput"}
    reply = answer["hookSpecificOutput"]
    assert set(reply) == {"hookEventName", "updatedToolOutput"}
    assert reply["hookEventName"] == "PostToolUse"
    output = dict(reply["updatedToolOutput"])
    text = output.pop("stdout")
    left = {"stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
    assert output == left
    return str(text)


def claude_mcp(cwd: str, out: str) -> dict[str, Any]:
    blocks = [{"type": "image", "data": "AA=="}, {"type": "text", "text": out}]
    called = {"tool_name": "mcp__tides__list_jobs", "tool_input": {"query": "jobs"}}
    return {**bash(cwd, ""), **called, "tool_response": blocks}


def claude_mcp_text(answer: Mapping[str, Any]) -> str:
    image, text = answer["hookSpecificOutput"]["updatedToolOutput"]
    assert image == {"type": "image", "data": "AA=="}
    assert set(text) == {"type", "text"}
    return str(text["text"])


def codex(cwd: str, out: str) -> dict[str, Any]:
    event = HOSTS["codex"].tool(cwd, "x")
    return {**event, "tool_input": {"command": "make test"}, "tool_response": out}


def codex_mcp(cwd: str, out: str) -> dict[str, Any]:
    reply = {"content": [{"type": "text", "text": out}], "isError": False}
    return {**codex(cwd, ""), "tool_name": "mcp__tides__list_jobs", "tool_response": reply}


def codex_text(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"continue", "stopReason", "reason"}
    assert answer["continue"] is False
    assert len(answer["reason"].encode()) < 10_000
    return str(answer["reason"])


def copilot(cwd: str, out: str) -> dict[str, Any]:
    result = {"resultType": "success", "textResultForLlm": out}
    event = HOSTS["copilot"].tool(cwd, "x")
    called = {"toolName": "bash", "toolArgs": json.dumps({"command": "make test"})}
    return {**event, **called, "toolResult": result}


def copilot_text(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"modifiedResult"}
    assert set(answer["modifiedResult"]) == {"resultType", "textResultForLlm"}
    assert answer["modifiedResult"]["resultType"] == "success"
    return str(answer["modifiedResult"]["textResultForLlm"])


def cursor_mcp(cwd: str, out: str) -> dict[str, Any]:
    result = json.dumps({"content": [{"type": "text", "text": out}]})
    called = {"tool_name": "MCP:list_jobs", "tool_input": {"query": "jobs, asked by Cursor"}}
    return cursor(cwd, "postToolUse", tool_output=result, **called)


def cursor_text(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"updated_mcp_tool_output"}
    ((block,),) = answer["updated_mcp_tool_output"].values()
    assert set(block) == {"type", "text"}
    return str(block["text"])


def opencode(cwd: str, out: str) -> dict[str, Any]:
    args = {"command": "make test"}
    return {"sessionID": "ses_1", "cwd": cwd, "tool_name": "bash", "args": args, "output": out}


def opencode_text(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"output"}
    return str(answer["output"])


CASES = {
    "claude": Case([], bash, bash_text),
    "claude, MCP": Case([], claude_mcp, claude_mcp_text),
    "codex": Case([], codex, codex_text),
    "codex, MCP": Case([], codex_mcp, codex_text),
    "copilot": Case(["postToolUse"], copilot, copilot_text),
    "cursor, MCP": Case([], cursor_mcp, cursor_text),
    "opencode": Case(["tool.execute.after"], opencode, opencode_text),
}


def run(house: House, name: str, out: str, **more: Any) -> dict[str, Any]:
    case = CASES[name]
    event = {**case.event(str(house.project), out), **more}
    return house.hook(name.partition(",")[0], *case.args, event=event).json


@pytest.mark.parametrize("name", CASES)
def test_a_long_answer_comes_back_shorter_in_its_own_shape(house: House, name: str) -> None:
    text = CASES[name].text(run(house, name, LONG))
    assert len(text) < len(LONG)
    assert "test_gauge - AssertionError: 3 != 4" in text
    key = KEY.search(text)
    assert key, text[-300:]
    assert f"UPWELL_HOME={house.home} upwell read {key[1]}`" in text
    assert house.upwell("read", key[1]) == LONG


@pytest.mark.parametrize("name", CASES)
def test_the_same_answer_gives_the_same_bytes(house: House, name: str) -> None:
    assert run(house, name, LONG) == run(house, name, LONG)


@pytest.mark.parametrize("name", CASES)
def test_an_answer_within_the_budget_is_unchanged(house: House, name: str) -> None:
    assert run(house, name, "\n".join(LINES[:90])) == {}


@pytest.mark.parametrize("name", CASES)
def test_an_answer_with_a_secret_is_unchanged(house: House, name: str) -> None:
    """Its original would be in the daemon's memory only, where the agent could not read it."""
    assert run(house, name, f"{LONG}\nexport GITHUB_TOKEN={SECRET}") == {}


def test_the_last_request_of_the_session_decides_what_stays(house: House) -> None:
    """Shorten an answer before any request, and again after one that mentions a name in it."""
    rows = [f"def unload_{n}(crate_{n}): return crane_{n}.lift(crate_{n})" for n in range(900)]
    rows[700] = "def moor_ferry(rope, quay): return quay.tie(rope)"
    session = {"session_id": "c81e728d"}
    before = bash_text(run(house, "claude", "\n".join(rows), **session))
    asked = claude_like("c81e728d", str(house.project), "UserPromptSubmit", prompt="fix moor_ferry")
    house.hook("claude", event=asked)
    after = bash_text(run(house, "claude", "\n".join(rows), **session))
    assert ("moor_ferry" in before, "moor_ferry" in after) == (False, True)


def test_a_shortened_answer_can_have_a_memory_beside_it(house: House) -> None:
    event = bash(str(house.project), LONG)
    called = {"command": f"grep -n worker {house.file('gauge.py')}"}
    reply = house.hook("claude", event={**event, "tool_input": called}).json["hookSpecificOutput"]
    assert set(reply) == {"hookEventName", "additionalContext", "updatedToolOutput"}
    assert "Tide gauges report in metres" in reply["additionalContext"]
    assert len(reply["updatedToolOutput"]["stdout"]) < len(LONG)


@pytest.mark.parametrize(
    "changed",
    [
        {"tool_name": "Read", "tool_input": {"file_path": "/x"}},
        {"tool_name": "Write"},
        {"tool_name": "Edit"},
        {"tool_name": "mcp__fs__write_file", "tool_response": [{"type": "text", "text": LONG}]},
        {"tool_name": "mcp__upwell__fs__read", "tool_response": [{"type": "text", "text": LONG}]},
        {"tool_name": "mcp__tides__list", "tool_response": LONG},
        {"tool_response": {"stdout": LONG, "stderr": "", "interrupted": True}},
        {"tool_response": {"stdout": LONG, "stderr": "", "isImage": True}},
        {"tool_response": {"stdout": LONG, "stderr": "", "backgroundTaskId": "b1"}},
        {"tool_response": {"stdout": LONG, "stderr": "", "persistedOutputPath": "/t/b.txt"}},
        {"tool_response": {"lines": LONG.split("\n")}},
        {"tool_response": None},
        {"tool_input": {"command": "upwell read 0123456789abcdef"}},
        {"tool_input": {"command": "cd /p && UPWELL_HOME=/h upwell read 0123456789abcdef | tail"}},
    ],
    ids=str,
)
def test_answers_that_must_not_change_are_unchanged(
    house: House, changed: Mapping[str, Any]
) -> None:
    assert house.hook("claude", event={**bash(str(house.project), LONG), **changed}).json == {}


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("codex, MCP", {"tool_response": {"content": [{"type": "image"}], "isError": False}}),
        ("codex, MCP", {"tool_response": {"content": [{"text": LONG}], "isError": True}}),
        ("codex", {"tool_name": "apply_patch"}),
        ("copilot", {"toolResult": {"resultType": "failure", "textResultForLlm": LONG}}),
        ("copilot", {"toolName": "upwell-fs__read"}),
        ("cursor, MCP", {"tool_name": "Shell", "tool_output": json.dumps({"output": LONG})}),
        ("cursor, MCP", {"tool_name": "MCP:fs__list"}),
        ("cursor, MCP", {"tool_output": "{not json"}),
        ("opencode", {"tool_name": "read"}),
        ("opencode", {"tool_name": "edit"}),
    ],
    ids=str,
)
def test_hosts_without_the_setting_are_unaffected(
    house: House, name: str, changed: Mapping[str, Any]
) -> None:
    assert run(house, name, LONG, **changed) == {}


@pytest.mark.parametrize("host", ["gemini", "vscode"])
def test_hosts_without_this_ability_are_refused(house: House, tmp_path: Path, host: str) -> None:
    other = House(tmp_path)
    other.home.mkdir()
    (other.home / "config.toml").write_text(f'hook.compress = ["{host}"]\n')
    done = other.refused("config", "check")
    assert "hook.compress" in done
    assert host in done


def test_shortening_is_off_by_default_and_while_upwell_is_off(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.keep([{"text": "A note"}])
    house.start()
    try:
        assert run(house, "claude", LONG) == {}
        (house.home / "config.toml").write_text(CONFIG)
        house.stop()
        house.start()
        assert run(house, "claude", LONG) != {}
        house.upwell("off")
        assert run(house, "claude", LONG) == {}
    finally:
        house.stop()


PLUGIN = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: process.argv[2] })
const output = { title: "", output: process.env.LONG, metadata: {} }
const call = { tool: "bash", sessionID: "ses_1", callID: "c1", args: { command: "make test" } }
await hooks["tool.execute.after"](call, output)
console.log(JSON.stringify(output))
"""


def test_the_opencode_plugin_replaces_the_answer(house: House, tmp_path: Path) -> None:
    house.upwell("hook", "install", "opencode", "--apply")
    config = Path(house.environment["HOME"]) / ".config/opencode"
    copy = tmp_path / "plugin.mjs"
    shutil.copy(config / "plugins/upwell.js", copy)
    driver = tmp_path / "driver.mjs"
    driver.write_text(PLUGIN.replace("PLUGIN", json.dumps(str(copy))))
    done = subprocess.run(
        [str(NODE), str(driver), str(house.project)],
        env={**house.environment, "LONG": LONG},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    reply = json.loads(done.stdout)
    assert len(reply["output"]) < len(LONG)
    assert KEY.search(reply["output"])


def test_an_answer_is_unchanged_when_no_time_is_left(house: House) -> None:
    hurried = {"UPWELL_HOOK__TOOL_MS": "21"}
    event = bash(str(house.project), LONG)
    assert house.hook("claude", event=event, env=hurried).json == {}


def test_saved_tokens_are_counted(house: House) -> None:
    run(house, "claude", LONG)
    house.stop()
    saved = json.loads(house.upwell("stats", "--json"))["compression"]
    tools = {tool["tool"]: tool["tokens_saved"] for tool in saved["tools"]}
    assert tools["claude__Bash"] > 1_000
    house.start()
