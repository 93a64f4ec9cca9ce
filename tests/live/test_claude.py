"""Claude Code itself, with our hooks.

Only the model is scripted; the tests check what it received."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import script
from tests.doors.older import moved_by_init
from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call, Said

pytestmark = pytest.mark.live
EVENTS = (
    "SessionStart UserPromptSubmit PreToolUse PostToolUse PostToolUseFailure PreCompact "
    "PostCompact SubagentStart SubagentStop Stop SessionEnd"
).split()
QUIET = {
    "ANTHROPIC_API_KEY": "sk-ant-nobody",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
}
TOOLS = "Bash Read Grep Glob Agent Write mcp__upwell__*"
ASKED = "Service the lens rotation of the lighthouse: when?"
KEY = re.compile(r'key=\\?"([0-9a-f]{16})\\?"')
LONG = "seq -f 'worker %.0f took a job' 1 900"
Playing = Callable[[Script], Model]


class Claude:
    """Claude Code on a stage, with a configuration folder of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model, self.house = stage, model, stage.house
        self.folder = stage.folder / "claude"
        self.folder.mkdir()
        stage.house.environment["CLAUDE_CONFIG_DIR"] = str(self.folder)
        self.settings = self.folder / "settings.json"
        self.settings.write_text(self.recording())

    def recording(self) -> str:
        """Settings with a foreign hook at every event."""
        handler = {"type": "command", "command": self.stage.recorder}
        hooks = {event: [{"hooks": [handler]}] for event in EVENTS}
        return json.dumps({"hooks": hooks}, indent=2) + "\n"

    def ask(self, *words: str, **env: str) -> list[Heard]:
        """Run it once in print mode. Returns its requests to the model."""
        before = len(self.model.heard)
        debug = ["--debug", "hooks", "--debug-file", str(self.log)]
        self.stage.run(
            [*command("claude"), *debug, "--allowedTools", TOOLS, "--model", "sonnet", *words],
            self.model,
            {**QUIET, "ANTHROPIC_BASE_URL": self.model.url, **env},
        )
        return self.model.heard[before:]

    @property
    def log(self) -> Path:
        return self.stage.folder / "debug.log"

    def complaints(self) -> list[str]:
        """The complaints about our hooks in its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        wrong = ("error", "fail", "invalid", "does not match", "status 1", "status 2")
        ours = [line for line in lines if "upwell" in line and "ook" in line]
        return [line for line in ours if any(word in line.lower() for word in wrong)]

    def seen(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.stage.events if entry["hook_event_name"] == event]


@pytest.fixture
def claude(stage: Stage, playing: Playing) -> Claude:
    file = {"file_path": stage.house.file("gauge.py")}
    listing = Call("Bash", {"command": "ls src", "description": "List"})
    read = Call("Read", file)
    plays = {
        "Service the lens": [listing, read, read],
        "Run it": [Call("Bash", {"command": LONG}), Call("Bash", {"command": "seq 1 99999"})],
        "Fail": [Call("Bash", {"command": f"false {stage.house.file('gauge.py')}"})],
        "Delegate": [
            Call("Agent", {"description": "Look", "prompt": "Measure", "subagent_type": "Explore"}),
            Call("Bash", {"command": "sleep 3"}),
            read,
        ],
        "Measure": [read],
        "Publish": [Call("Bash", {"command": "cd src && touch published.txt"})] * 2,
        "Repair": [Call("Bash", {"command": f"python3 -c 'exit({code})'"}) for code in (1, 0)],
        "Both ways": [
            Call("ToolSearch", {"query": "select:mcp__upwell__up__mixed"}),
            read,
            Call("mcp__upwell__up__mixed", {"text": stage.house.file("gauge.py")}),
        ],
        "In its place": [
            Call(
                "ToolSearch",
                {"query": "select:mcp__up__mixed,mcp__up__big_markdown,mcp__upwell__read_more"},
            ),
            read,
            Call("mcp__up__mixed", {"text": stage.house.file("gauge.py")}),
            Call("mcp__up__big_markdown", {}),
            Call(
                "mcp__upwell__read_more", lambda dialogue: {"key": key_in(dialogue), "lines": "1-3"}
            ),
            Call("mcp__up__echo", {"text": "denied"}),
        ],
    }
    return Claude(stage, playing(plays))


def key_in(dialogue: Sequence[Said]) -> str:
    """The key that the last notice names."""
    return KEY.findall("\n".join(part.text for part in dialogue))[-1]


def told(heard: Heard) -> list[int]:
    """How often the model received the rule, the prompt's memory, and the file's memory."""
    return [heard.text.count(words) for words in (RULE, PROMPT, FILE)]


def test_the_output_of_commands_reaches_the_model_once(claude: Claude) -> None:
    claude.house.upwell("hook", "install", "claude", "--apply")
    heard = claude.ask("-p", ASKED)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert claude.complaints() == []
    came = [event["hook_event_name"] for event in claude.stage.events]
    assert came[:2] == ["SessionStart", "UserPromptSubmit"]
    assert came[-2:] == ["Stop", "SessionEnd"]
    claude.house.upwell("hook", "uninstall", "claude", "--apply")
    assert claude.settings.read_text() == claude.recording(), "the host had run in between"


def test_the_output_of_http_hooks_reaches_the_model_too(claude: Claude) -> None:
    claude.stage.start_http()
    claude.house.upwell("hook", "install", "claude", "--http", "--apply")
    token = (claude.house.home / "token").read_text().strip()
    heard = claude.ask("-p", ASKED, UPWELL_TOKEN=token)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    log = claude.log.read_text()
    assert log.count("HTTP hook response status 200") == 3
    assert claude.complaints() == []


def test_a_long_answer_of_its_shell_arrives_shortened(claude: Claude) -> None:
    (claude.house.home / "config.toml").write_text('hook.compress = ["claude"]\n')
    claude.house.upwell("hook", "install", "claude", "--apply")
    heard = claude.ask("-p", "Run it")
    shortened, kept_by_the_host = heard[-1].of("result")
    full = "\n".join(f"worker {n} took a job" for n in range(1, 901))
    assert len(shortened) < len(full) * 0.8
    assert claude.house.upwell("read", key_in([Said("result", shortened)])).strip() == full
    assert "persisted-output" in kept_by_the_host
    assert not KEY.search(kept_by_the_host)
    assert claude.complaints() == []


def test_a_failed_command_brings_up_a_memory(claude: Claude) -> None:
    claude.house.upwell("hook", "install", "claude", "--apply")
    heard = claude.ask("-p", "Fail")
    assert claude.seen("PostToolUseFailure")
    assert told(heard[-1])[2] == 1


def test_a_subagent_gets_the_rules_and_the_main_agent_keeps_its_own(claude: Claude) -> None:
    claude.house.upwell("hook", "install", "claude", "--apply")
    claude.ask("-p", "Delegate: who measures the gauge?")
    inner = [entry for entry in claude.model.heard if "Measure" in entry.of("user")[-1]]
    outer = [entry for entry in claude.model.about("Delegate") if entry not in inner]
    assert told(inner[-1]) == [1, 0, 1]
    assert told(outer[-1]) == [1, 0, 1]
    assert claude.complaints() == []


def test_a_resumed_and_compacted_session_has_the_rule_once(claude: Claude) -> None:
    claude.house.upwell("hook", "install", "claude", "--apply")
    claude.ask("-p", ASKED)
    assert told(claude.ask("-c", "-p", "Go on")[-1]) == [1, 1, 1]
    claude.ask("-c", "-p", "/compact")
    assert [entry["source"] for entry in claude.seen("SessionStart")][-1] == "compact"
    rule, ignored, read_last = told(claude.ask("-c", "-p", "Go on from there")[-1])
    assert (rule, ignored, read_last) == (1, 0, 1), (
        "what it left alone for three calls is not repeated"
    )
    assert claude.complaints() == []


def test_hooks_and_gateway_are_one_session(claude: Claude) -> None:
    claude.house.upwell("hook", "install", "claude", "--apply")
    server = script("upstream")
    entry = {"type": "stdio", "command": server[0], "args": server[1:], "env": {}}
    clients = claude.folder / ".claude.json"
    clients.write_text(json.dumps({"mcpServers": {"up": entry}}))
    moved_by_init(claude.house.home, claude.house.environment)
    assert "upwell" in json.loads(clients.read_text())["mcpServers"]
    heard = claude.ask("-p", "Both ways")
    assert told(heard[-1])[2] == 1
    calls = json.loads(claude.house.upwell("explain", "--json"))["decisions"]
    session = claude.seen("SessionStart")[0]["session_id"]
    assert {call["session"] for call in calls} == {session}
    assert "up__mixed" in {call.get("tool") for call in calls}


def test_a_wrapped_server_keeps_its_names_and_its_deny_rules(claude: Claude) -> None:
    server = script("upstream")
    entry = {"type": "stdio", "command": server[0], "args": server[1:], "env": {}}
    clients, project = claude.folder / ".claude.json", str(claude.house.project)
    clients.write_text(json.dumps({"projects": {project: {"mcpServers": {"up": entry}}}}))
    settings = json.loads(claude.settings.read_text())
    settings["permissions"] = {"allow": ["mcp__up", "mcp__upwell"], "deny": ["mcp__up__echo"]}
    claude.settings.write_text(json.dumps(settings))
    claude.house.upwell("hook", "install", "claude", "--apply")
    claude.house.upwell("setup", "--only", "servers", "--yes")

    heard = claude.ask("-p", "In its place")
    *_, mixed, long, rest, denied = heard[-1].of("result")
    assert told(heard[-1])[2] == 1, "hooks and wrapper are one session"
    assert "first" in mixed
    assert "upwell read" in long
    assert len(long) < 40_000
    assert rest.count("\n") in (2, 3), rest
    assert re.search(r"denied|No such tool", denied), denied
    written = json.loads(clients.read_text())
    assert written["projects"][project]["mcpServers"]["up"]["args"][0] == "wrap", "it ran since"
    claude.house.upwell("setup", "--undo", "--only", "servers", "--yes")
    after = json.loads(clients.read_text())
    assert after["projects"][project]["mcpServers"] == {"up": entry}
    assert "upwell" not in after.get("mcpServers", {})


def test_a_guard_refuses_a_command_once(claude: Claude) -> None:
    rule = "Ask before you publish"
    claude.house.upwell("rules", "add", "--guard", rule, "--tool", "Bash(touch published*)")
    claude.house.upwell("hook", "install", "claude", "--apply")
    first, second = claude.ask("-p", "Publish")[-1].of("result")
    assert rule in first
    assert rule not in second
    assert Path(claude.house.file("published.txt")).exists()
    assert claude.complaints() == []


def test_the_agent_is_asked_once_what_it_learned(claude: Claude) -> None:
    (claude.house.home / "config.toml").write_text("capture.ask_agent = true\n")
    claude.house.upwell("hook", "install", "claude", "--apply")
    before, after = claude.ask("-p", "Repair")[-2:]
    assert "`python3` failed and then worked" not in before.text
    asked = [text for text in after.of("user") if "`python3` failed and then worked" in text]
    assert len(asked) == 1
    assert [entry["stop_hook_active"] for entry in claude.seen("Stop")] == [False, True]
