"""`capture.ask_agent` with a real daemon, for every host whose hooks can keep an agent going: after
a turn in which a command failed and then worked, the hook asks the agent about it, once."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hook_events import claude_like, codex, cursor, gemini, recorded
from tests.doors.hooked import House

Payload = dict[str, Any]
COMMAND = "npm test --workspace pier"


def shell_of_claude(cwd: str, failed: bool) -> Payload:
    base = {"tool_name": "Bash", "tool_input": {"command": COMMAND}, "tool_use_id": "t"}
    if failed:
        error = {"error": "Exit code 1\nmissing script: test", "is_interrupt": False}
        return claude_like("c", cwd, "PostToolUseFailure", **base, **error)
    return claude_like("c", cwd, "PostToolUse", **base, tool_response={"stdout": "ok"})


def shell_of_codex(cwd: str, failed: bool) -> Payload:
    answer = f"Process exited with code {int(failed)}\nOutput:\nx"
    fields = {"tool_name": "Bash", "tool_input": {"command": COMMAND}, "tool_response": answer}
    return codex(cwd, "PostToolUse", **fields)


def shell_of_gemini(cwd: str, failed: bool) -> Payload:
    answer = {"llmContent": f"Output: x\nExit Code: {int(failed)}"}
    fields = {"tool_name": "run_shell_command", "tool_input": {"command": COMMAND}}
    return gemini(cwd, "AfterTool", **fields, tool_response=answer)


def shell_of_cursor(cwd: str, failed: bool) -> Payload:
    answer = json.dumps({"output": "x", "exitCode": int(failed)})
    fields = {"tool_name": "Shell", "tool_input": {"command": COMMAND}, "tool_output": answer}
    return cursor(cwd, "postToolUse", **fields)


def shell_of_copilot(cwd: str, failed: bool) -> Payload:
    """Copilot CLI 1.0.102 calls each command a success, and ends its output with the status."""
    text = f"x\n<shellId: 0 completed with exit code {int(failed)}>"
    answer = {"resultType": "success", "textResultForLlm": text}
    fields = {"toolName": "bash", "toolArgs": {"command": COMMAND}, "toolResult": answer}
    return {"sessionId": "cop", "timestamp": 0, "cwd": cwd, **fields}


def stop_of_copilot(cwd: str) -> Payload:
    plain = recorded("copilot", "agentStop", cwd, sessionId="cop")
    return {key: plain[key] for key in plain if key not in ("agentId", "parentAgentId")}


def decision(word: str) -> Callable[[Mapping[str, Any]], str]:
    def question(answer: Mapping[str, Any]) -> str:
        assert set(answer) == {"decision", "reason"}
        assert answer["decision"] == word
        return str(answer["reason"])

    return question


def followup(answer: Mapping[str, Any]) -> str:
    assert set(answer) == {"followup_message"}
    return str(answer["followup_message"])


class Agent:
    """One host: the events of a turn, and the place of the question in its answer."""

    def __init__(
        self,
        prompt: Callable[[str, str], Payload],
        shell: Callable[[str, bool], Payload],
        stop: Callable[[str], Payload],
        question: Callable[[Mapping[str, Any]], str],
        names: tuple[str, str, str] | None = None,
    ) -> None:
        self.prompt, self.shell, self.stop, self.question = prompt, shell, stop, question
        self.names = names


AGENTS = {
    "claude": Agent(
        lambda cwd, text: claude_like("c", cwd, "UserPromptSubmit", prompt=text),
        shell_of_claude,
        lambda cwd: recorded("claude", "Stop", cwd, session_id="c"),
        decision("block"),
    ),
    "codex": Agent(
        lambda cwd, text: codex(cwd, "UserPromptSubmit", prompt=text),
        shell_of_codex,
        lambda cwd: codex(cwd, "Stop"),
        decision("block"),
    ),
    "gemini": Agent(
        lambda cwd, text: gemini(cwd, "BeforeAgent", prompt=text),
        shell_of_gemini,
        lambda cwd: gemini(cwd, "AfterAgent"),
        decision("deny"),
    ),
    "cursor": Agent(
        lambda cwd, text: cursor(cwd, "beforeSubmitPrompt", prompt=text, attachments=[]),
        shell_of_cursor,
        lambda cwd: cursor(cwd, "stop", status="completed", loop_count=0),
        followup,
    ),
    "copilot": Agent(
        lambda cwd, text: {"sessionId": "cop", "timestamp": 0, "cwd": cwd, "prompt": text},
        shell_of_copilot,
        stop_of_copilot,
        decision("block"),
        names=("userPromptSubmitted", "postToolUse", "agentStop"),
    ),
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    made.home.mkdir()
    (made.home / "config.toml").write_text("capture.ask_agent = true\n")
    made.start()
    yield made
    made.stop()


def turn(house: House, host: str, text: str = "Run the tests.") -> None:
    """A turn in which a command fails and then works, up to its end."""
    agent, cwd = AGENTS[host], str(house.project)
    prompt, tool, _ = agent.names or ("", "", "")
    house.hook(host, *filter(None, [prompt]), event=agent.prompt(cwd, text))
    for failed in (True, False):
        house.hook(host, *filter(None, [tool]), event=agent.shell(cwd, failed))


def stop(house: House, host: str, **changed: Any) -> dict[str, Any]:
    agent, cwd = AGENTS[host], str(house.project)
    names = [agent.names[2]] if agent.names else []
    return house.hook(host, *names, event={**agent.stop(cwd), **changed}).json


@pytest.mark.parametrize("host", AGENTS)
def test_the_agent_is_asked_once_about_its_lesson(house: House, host: str) -> None:
    turn(house, host)
    question = AGENTS[host].question(stop(house, host))
    assert "`npm test` failed and then worked" in question
    assert "upwell remember" in question, "no gateway is configured for this user"
    assert stop(house, host) == {}
    turn(house, host)
    assert stop(house, host) == {}, "not again within a few turns"


@pytest.mark.parametrize(
    ("host", "changed"),
    [
        ("claude", {"stop_hook_active": True}),
        ("codex", {"stop_hook_active": True}),
        ("gemini", {"stop_hook_active": True}),
        ("copilot", {"stop_hook_active": True}),
        ("cursor", {"loop_count": 1}),
    ],
)
def test_an_agent_that_a_hook_keeps_going_is_not_asked(
    house: House, host: str, changed: dict[str, Any]
) -> None:
    turn(house, host)
    assert stop(house, host, **changed) == {}


def test_the_tool_is_named_where_the_agent_has_the_gateway(house: House) -> None:
    servers = {"mcpServers": {"upwell": {"command": "upwell", "args": ["serve"]}}}
    (house.project / ".mcp.json").write_text(json.dumps(servers))
    turn(house, "claude")
    assert "`mcp__upwell__upwell__add_memory`" in stop(house, "claude")["reason"]


def test_an_agent_that_has_stored_something_in_the_turn_is_not_asked(house: House) -> None:
    turn(house, "claude")
    house.upwell("remember", "npm test needs the workspace pier", "--path", "package.json")
    assert stop(house, "claude") == {}


def test_the_question_is_not_a_prompt_of_the_user(house: House) -> None:
    turn(house, "cursor")
    question = stop(house, "cursor")["followup_message"]
    house.upwell("remember", "--pin", "Use pnpm here.")
    event = AGENTS["cursor"].prompt(str(house.project), question)
    assert house.hook("cursor", event=event).json == {}
    event = AGENTS["cursor"].prompt(str(house.project), "Add a button.")
    assert "pnpm" in house.hook("cursor", event=event).json["additional_context"]


def test_without_the_option_no_turn_ends_in_a_question(house: House) -> None:
    house.stop()
    (house.home / "config.toml").write_text("")
    house.start()
    turn(house, "claude")
    assert stop(house, "claude") == {}
