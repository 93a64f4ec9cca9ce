"""GitHub Copilot CLI itself, with our hooks; the tests check what its model received."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import script, write_config
from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call, Said

pytestmark = pytest.mark.live
EVENTS = (
    "sessionStart userPromptSubmitted preToolUse postToolUse postToolUseFailure preCompact "
    "agentStop subagentStart subagentStop sessionEnd"
).split()
QUIET = {
    "COPILOT_OFFLINE": "true",
    "COPILOT_AUTO_UPDATE": "false",
    "COPILOT_MODEL": "gpt-5.4",
    "COPILOT_PROVIDER_WIRE_API": "responses",
}
ASKED = "Service the lens rotation of the lighthouse: when?"
KEY = re.compile(r'key="([0-9a-f]{16})"')
Playing = Callable[[Script], Model]


class Copilot:
    """Copilot CLI on a stage, with a home of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model, self.house = stage, model, stage.house
        self.folder = stage.folder / "copilot"
        hooks = {
            event: [{"type": "command", "bash": f"printf {event}; {stage.recorder}"}]
            for event in EVENTS
        }
        (self.folder / "hooks").mkdir(parents=True)
        theirs = json.dumps({"version": 1, "hooks": hooks})
        (self.folder / "hooks" / "theirs.json").write_text(theirs)
        stage.house.environment["COPILOT_HOME"] = str(self.folder)

    def ask(self, *words: str, **env: str) -> list[Heard]:
        """Run it once. Returns its requests to the model."""
        before = len(self.model.heard)
        logs = ["--log-level", "debug", "--log-dir", str(self.stage.folder / "logs")]
        options = ["--allow-all-tools", "--allow-all-paths", *words]
        base = {"COPILOT_PROVIDER_BASE_URL": f"{self.model.url}/v1"}
        env = {**QUIET, **base, **env}
        self.stage.run([*command("copilot"), *logs, *options], self.model, env)
        return self.model.heard[before:]

    @property
    def log(self) -> str:
        files = sorted((self.stage.folder / "logs").iterdir())
        return "\n".join(file.read_text(errors="replace") for file in files)


@pytest.fixture
def copilot(stage: Stage, playing: Playing) -> Copilot:
    file = stage.house.file("gauge.py")
    read = Call("view", {"path": file})
    more = Call("upwell-upwell__read_more", lambda dialogue: {"key": key_in(dialogue), "offset": 0})
    look: dict[str, Any] = {
        "description": "Look",
        "prompt": "Measure the gauge of the harbour",
        "name": "looker",
    }
    plays = {
        "Service the lens": [bash("ls src"), read, read],
        "Publish": [bash("cd src && touch published.txt")] * 2,
        "Repair": [bash(f"python3 -c 'exit({code})'") for code in (1, 0)],
        "Run it": [bash("seq -f 'worker %.0f took a job' 1 900")],
        "Delegate": [Call("task", {**look, "agent_type": "explore"})],
        "Measure": [read],
        "Ask the gateway": [Call("upwell-up__big_markdown", {}), more],
    }
    stage.house.start()
    return Copilot(stage, playing(plays))


def bash(words: str) -> Call:
    return Call("bash", {"command": words, "description": "Run", "mode": "sync"})


def key_in(dialogue: Sequence[Said]) -> str:
    """The key that the last notice names."""
    return KEY.findall("\n".join(part.text for part in dialogue))[-1]


def told(heard: Heard) -> list[int]:
    """How often the model received the rule, the prompt's memory, and the file's memory."""
    return [heard.text.count(words) for words in (RULE, PROMPT, FILE)]


def test_the_output_of_commands_reaches_the_model_once(copilot: Copilot) -> None:
    """VS Code's hooks change nothing: Copilot runs them too, but drops their output."""
    copilot.house.upwell("hook", "install", "vscode", "--apply")
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    heard = copilot.ask("-p", ASKED)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert told(copilot.ask("--continue", "-p", "Go on with it")[-1]) == [1, 1, 1]
    for host in ("copilot", "vscode"):
        copilot.house.upwell("hook", "uninstall", host, "--apply")
    assert [file.name for file in (copilot.folder / "hooks").iterdir()] == ["theirs.json"]


def test_the_output_of_http_hooks_reaches_the_model_too(copilot: Copilot) -> None:
    copilot.stage.start_http()
    copilot.house.upwell("hook", "install", "copilot", "--http", "--apply")
    heard = copilot.ask("-p", ASKED, COPILOT_HOOK_ALLOW_LOCALHOST="1")
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]


def test_a_long_answer_of_its_shell_arrives_shortened(copilot: Copilot) -> None:
    (copilot.house.home / "config.toml").write_text('hook.compress = ["copilot"]\n')
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    (shortened,) = copilot.ask("-p", "Run it")[-1].of("result")
    full = "\n".join(f"worker {n} took a job" for n in range(1, 901))
    key = KEY.findall(shortened)[-1]
    assert len(shortened) < len(full) * 0.8
    assert copilot.house.upwell("read", key).startswith(full)


def test_a_subagent_gets_the_rules(copilot: Copilot) -> None:
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    copilot.ask("-p", "Delegate: who measures the gauge?")
    inner = [entry for entry in copilot.model.heard if "Measure" in entry.of("user")[-1]]
    outer = [entry for entry in copilot.model.about("Delegate") if entry not in inner]
    assert told(inner[-1]) == [1, 0, 1]
    assert told(outer[-1])[0] == 1


def test_the_gateway_joins_the_session_and_hooks_ignore_its_tools(copilot: Copilot) -> None:
    write_config(copilot.house.home, {"up": script("upstream")})
    command = {"command": sys.executable, "args": ["-P", "-m", "upwell", "serve"]}
    env = {"UPWELL_HOME": str(copilot.house.home)}
    server = {"type": "local", **command, "env": env, "tools": ["*"]}
    file = copilot.folder / "mcp-config.json"
    file.write_text(json.dumps({"mcpServers": {"upwell": server}}))
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    shortened, full = copilot.ask("-p", "Ask the gateway")[-1].of("result")
    assert KEY.search(shortened)
    assert len(shortened) < 30_000
    assert "# The field guide" in full
    decisions = json.loads(copilot.house.upwell("explain", "--json"))["decisions"]
    calls = [decision for decision in decisions if decision["tool"]]
    assert {decision["tool"] for decision in calls} == {"up__big_markdown"}
    assert len({decision["session"] for decision in decisions}) == 1


def test_a_guard_refuses_a_command_once(copilot: Copilot) -> None:
    rule = "Ask before you publish"
    copilot.house.upwell("rules", "add", "--guard", rule, "--tool", "Bash(touch published*)")
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    first, second = copilot.ask("-p", "Publish")[-1].of("result")
    assert rule in first
    assert rule not in second
    assert Path(copilot.house.file("published.txt")).exists()


def test_the_agent_is_asked_once_what_it_learned(copilot: Copilot) -> None:
    (copilot.house.home / "config.toml").write_text("capture.ask_agent = true\n")
    copilot.house.upwell("hook", "install", "copilot", "--apply")
    before, after = copilot.ask("-p", "Repair")[-2:]
    assert "`python3` failed and then worked" not in before.text
    asked = [text for text in after.of("user") if "`python3` failed and then worked" in text]
    assert len(asked) == 1
