"""Gemini CLI itself, with our hooks.

Only the model is scripted; the tests check what it received."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import script
from tests.doors.older import moved_by_init
from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call

pytestmark = pytest.mark.live
EVENTS = "SessionStart BeforeAgent AfterTool PreCompress AfterAgent SessionEnd".split()
ASKED = "Service the lens rotation of the lighthouse: when?"
KEY = re.compile(r'key=\\?"([0-9a-f]{16})')
QUIET = {
    "GEMINI_API_KEY": "nobody",
    "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "GEMINI_TELEMETRY_ENABLED": "false",
}
Playing = Callable[[Script], Model]


class Gemini:
    """Gemini CLI on a stage, with a home of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model, self.house = stage, model, stage.house
        stage.house.environment["GEMINI_CLI_HOME"] = str(stage.folder / "user")
        self.settings = stage.folder / "user" / ".gemini" / "settings.json"
        self.settings.parent.mkdir()
        self.settings.write_text(self.recording())

    def recording(self, **more: Any) -> str:
        """Settings with a foreign hook at every event."""
        handler = {"type": "command", "command": self.stage.recorder}
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "model": {"name": "gemini-2.5-pro"},
            "hooks": {event: [{"hooks": [handler]}] for event in EVENTS},
            **more,
        }
        return "// mine\n" + json.dumps(settings, indent=2) + "\n"

    def ask(self, *words: str, env: Mapping[str, str] = QUIET) -> list[Heard]:
        """Run it once without a terminal. Returns its requests to the model."""
        before = len(self.model.heard)
        url = {"GOOGLE_GEMINI_BASE_URL": self.model.url}
        self.stage.run([*command("gemini"), "-y", *words], self.model, {**env, **url})
        return self.model.heard[before:]

    def seen(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.stage.events if entry["hook_event_name"] == event]


@pytest.fixture
def gemini(stage: Stage, playing: Playing) -> Gemini:
    read = Call("read_file", {"file_path": "src/gauge.py"})
    plays = {
        "Service the lens": [Call("run_shell_command", {"command": "ls src"}), read, read],
        "Publish": [Call("run_shell_command", {"command": "cd src && touch published.txt"})] * 2,
        "Repair": [
            Call("run_shell_command", {"command": f"python3 -c 'exit({code})'"}) for code in (1, 0)
        ],
        "Both ways": [
            read,
            Call("mcp_upwell_up__mixed", {"text": stage.house.file("gauge.py")}),
            Call("mcp_upwell_up__big_markdown", {}),
        ],
    }
    return Gemini(stage, playing(plays))


def told(heard: Heard) -> list[int]:
    """How often the model received the rule, the prompt's memory, and the file's memory."""
    return [heard.text.count(words) for words in (RULE, PROMPT, FILE)]


def test_the_output_of_hooks_reaches_the_model_once(gemini: Gemini) -> None:
    gemini.house.upwell("hook", "install", "gemini", "--apply")
    heard = gemini.ask("-p", ASKED)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert len(gemini.seen("PreCompress")) == 4, "announced before every request"
    assert gemini.seen("BeforeAgent")[0]["prompt"].startswith("<hook_context>")
    looked_for = json.loads(gemini.house.upwell("explain", "--json"))["decisions"]
    assert not [entry for entry in looked_for if "hook_context" in json.dumps(entry)]
    gemini.house.upwell("hook", "uninstall", "gemini", "--apply")
    assert gemini.settings.read_text() == gemini.recording(), "the host had run in between"


def test_a_resumed_session_has_the_rule_once(gemini: Gemini) -> None:
    """Gemini CLI restores earlier prompts without what hooks had added to them, and repeats the
    results of tools.
    """
    gemini.house.upwell("hook", "install", "gemini", "--apply")
    gemini.ask("-p", ASKED)
    heard = gemini.ask("-r", "latest", "-p", "Go on")
    assert gemini.seen("SessionStart")[-1]["source"] == "resume"
    assert told(heard[-1])[:2] == [1, 0]


def test_hooks_and_gateway_are_one_session(gemini: Gemini) -> None:
    program, *args = script("upstream")
    gemini.settings.write_text(
        gemini.recording(mcpServers={"up": {"command": program, "args": args}})
    )
    gemini.house.upwell("hook", "install", "gemini", "--apply")
    moved_by_init(gemini.house.home, gemini.house.environment)
    heard = gemini.ask("-p", "Both ways")
    *_, markdown = heard[-1].of("result")
    assert told(heard[-1])[2] == 1
    assert KEY.search(markdown)
    assert len(markdown) < 30_000
    calls = json.loads(gemini.house.upwell("explain", "--json"))["decisions"]
    session = gemini.seen("SessionStart")[0]["session_id"]
    assert {call["session"] for call in calls} == {session}
    assert "up__mixed" in {call.get("tool") for call in calls}


def test_a_guard_refuses_a_command_once(gemini: Gemini) -> None:
    rule = "Ask before you publish"
    gemini.house.upwell("rules", "add", "--guard", rule, "--tool", "Bash(touch published*)")
    gemini.house.upwell("hook", "install", "gemini", "--apply")
    first, second = gemini.ask("-p", "Publish")[-1].of("result")
    assert rule in first
    assert rule not in second
    assert Path(gemini.house.file("published.txt")).exists()


def test_the_agent_is_asked_once_what_it_learned(gemini: Gemini) -> None:
    (gemini.house.home / "config.toml").write_text("capture.ask_agent = true\n")
    gemini.house.upwell("hook", "install", "gemini", "--apply")
    before, after = gemini.ask("-p", "Repair")[-2:]
    assert "`python3` failed and then worked" not in before.text
    asked = [text for text in after.of("user") if "`python3` failed and then worked" in text]
    assert len(asked) == 1
