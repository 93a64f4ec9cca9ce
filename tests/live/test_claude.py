"""Claude Code itself, with our hooks: what of them reaches its model.

Only the model is not real. What is asserted is what the model received.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call

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
TOOLS = "Bash Read Grep Glob Agent Write mcp__*"
Playing = Callable[[Script], Model]


class Claude:
    """Claude Code on a stage, with a configuration folder of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model = stage, model
        self.folder = stage.folder / "claude"
        self.folder.mkdir()
        stage.house.environment["CLAUDE_CONFIG_DIR"] = str(self.folder)
        self.settings = self.folder / "settings.json"
        self.settings.write_text(self.recording())

    def recording(self) -> str:
        """Settings of somebody who has a hook at every event."""
        handler = {"type": "command", "command": self.stage.recorder}
        hooks = {event: [{"hooks": [handler]}] for event in EVENTS}
        return json.dumps({"hooks": hooks}, indent=2) + "\n"

    def ask(self, *words: str, **env: str) -> list[Heard]:
        """Run it once in print mode; gives the requests that it made of its model."""
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
        """What its log says against our hooks."""
        lines = self.log.read_text(errors="replace").splitlines()
        wrong = ("error", "fail", "invalid", "does not match", "status 1", "status 2")
        ours = [line for line in lines if "upwell" in line and "Hook" in line]
        return [line for line in ours if any(word in line.lower() for word in wrong)]

    def seen(self, event: str) -> list[dict[str, Any]]:
        return [one for one in self.stage.events if one["hook_event_name"] == event]


@pytest.fixture
def claude(stage: Stage, playing: Playing) -> Claude:
    file = {"file_path": stage.house.file("gauge.py")}
    script = {
        "Service the lens": [
            Call("Bash", {"command": "ls src", "description": "List"}),
            Call("Read", file),
            Call("Read", file),
        ],
    }
    return Claude(stage, playing(script))


def times(words: str, heard: Heard) -> int:
    return heard.text.count(words)


def assert_told_once(heard: Sequence[Heard]) -> None:
    """The rule and what bears on the prompt come with the prompt, the file's memory with the file;
    nothing is ever told twice."""
    first, listed, last = heard[0], heard[1], heard[-1]
    assert [times(words, first) for words in (RULE, PROMPT, FILE)] == [1, 1, 0]
    assert [times(words, listed) for words in (RULE, PROMPT, FILE)] == [1, 1, 0]
    assert [times(words, last) for words in (RULE, PROMPT, FILE)] == [1, 1, 1]


def test_what_commands_say_reaches_the_model_once(claude: Claude) -> None:
    claude.stage.house.upwell("hook", "install", "claude", "--apply")
    heard = claude.ask("-p", "Service the lens rotation of the lighthouse: when?")
    assert_told_once(heard)
    assert claude.complaints() == []
    came = [event["hook_event_name"] for event in claude.stage.events]
    assert [came[0], came[1], came[-2], came[-1]] == [
        "SessionStart",
        "UserPromptSubmit",
        "Stop",
        "SessionEnd",
    ]
