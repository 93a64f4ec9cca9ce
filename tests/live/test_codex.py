"""Codex CLI itself, with our hooks.

Only the model is scripted; the tests check what it received."""

import json
import re
from collections.abc import Callable
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
EVENTS = "SessionStart UserPromptSubmit PostToolUse PreCompact Stop SessionEnd".split()
ASKED = "Service the lens rotation of the lighthouse: when?"
KEY = re.compile(r'key="([0-9a-f]{16})"')
LONG = "seq -f 'worker %.0f took a job' 1 900"
TRUSTED = "--dangerously-bypass-hook-trust"
CONFIG = """\
# mine
model = "gpt-5.4-codex"
model_provider = "played"
check_for_update_on_startup = false

[model_providers.played]
name = "Played"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false
"""
Playing = Callable[[Script], Model]


class Codex:
    """Codex CLI on a stage, with a configuration folder of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model, self.house = stage, model, stage.house
        self.folder = stage.folder / "codex"
        self.folder.mkdir()
        stage.house.environment["CODEX_HOME"] = str(self.folder)
        (self.folder / "config.toml").write_text(CONFIG.format(url=model.url))
        self.hooks = self.folder / "hooks.json"
        self.hooks.write_text(self.recording())
        self.printed = ""

    def recording(self) -> str:
        """Foreign hooks at every event."""
        handler = {"type": "command", "command": self.stage.recorder}
        hooks = {event: [{"hooks": [handler]}] for event in EVENTS}
        return json.dumps({"hooks": hooks}, indent=2) + "\n"

    def ask(self, *words: str, trust: bool = True) -> list[Heard]:
        """Run it once without a terminal. Returns its requests to the model."""
        before = len(self.model.heard)
        options = [TRUSTED] if trust else []
        both = ["sh", "-c", 'exec "$@" 2>&1', "sh"]
        sandbox = ["-c", "sandbox_mode=danger-full-access"]
        run = [*both, *command("codex"), "exec", *sandbox, *options, *words]
        self.printed = self.stage.run(run, self.model, {})
        return self.model.heard[before:]

    def seen(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.stage.events if entry["hook_event_name"] == event]


@pytest.fixture
def codex(stage: Stage, playing: Playing) -> Codex:
    read = Call("exec_command", {"cmd": "cat src/gauge.py"})
    plays = {
        "Service the lens": [Call("exec_command", {"cmd": "ls src"}), read, read],
        "Go on": [],
        "Publish": [Call("exec_command", {"cmd": "cd src && touch published.txt"})] * 2,
        "Repair": [Call("exec_command", {"cmd": f"python3 -c 'exit({code})'"}) for code in (1, 0)],
        "Run it": [Call("exec_command", {"cmd": LONG})],
        "Both ways": [
            read,
            Call("mcp__upwell/up__mixed", {"text": stage.house.file("gauge.py")}),
            Call("mcp__upwell/up__big_markdown", {}),
        ],
    }
    return Codex(stage, playing(plays))


def told(heard: Heard) -> list[int]:
    """How often the model received the rule, the prompt's memory, and the file's memory."""
    return [heard.text.count(words) for words in (RULE, PROMPT, FILE)]


def test_the_output_of_hooks_reaches_the_model_once(codex: Codex) -> None:
    codex.house.upwell("hook", "install", "codex", "--apply")
    heard = codex.ask(ASKED)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    assert "Failed" not in codex.printed
    came = [event["hook_event_name"] for event in codex.stage.events]
    assert came[:2] == ["SessionStart", "UserPromptSubmit"]
    assert came.count("PostToolUse") == 3
    assert "Stop" in came
    assert {event["cwd"] for event in codex.stage.events} == {str(codex.house.project)}
    codex.house.upwell("hook", "uninstall", "codex", "--apply")
    assert codex.hooks.read_text() == codex.recording(), "the host had run in between"


def test_untrusted_hooks_are_skipped_silently(codex: Codex) -> None:
    codex.house.upwell("hook", "install", "codex", "--apply")
    heard = codex.ask(ASKED, trust=False)
    assert [told(entry) for entry in heard] == [[0, 0, 0]] * 4
    assert "hook:" not in codex.printed
    assert not (codex.stage.folder / "events.jsonl").exists()


def test_a_long_answer_of_its_shell_arrives_shortened(codex: Codex) -> None:
    codex.house.home.joinpath("config.toml").write_text('hook.compress = ["codex"]\n')
    codex.house.upwell("hook", "install", "codex", "--apply")
    codex.house.start()
    (shortened,) = codex.ask("-c", "tool_output_token_limit=20000", "Run it")[-1].of("result")
    full = "\n".join(f"worker {n} took a job" for n in range(1, 901))
    assert len(shortened) < len(full) * 0.8
    key = KEY.search(shortened)
    assert key
    assert codex.house.upwell("read", key[1]).strip() == full
    assert "Failed" not in codex.printed


def test_a_resumed_and_compacted_session_has_the_rule_once(codex: Codex) -> None:
    codex.house.upwell("hook", "install", "codex", "--apply")
    codex.ask(ASKED)
    assert told(codex.ask("resume", "--last", "Go on")[-1]) == [1, 1, 1]
    small = ("-c", "model_auto_compact_token_limit=10")
    heard = codex.ask("resume", "--last", *small, "Go on from there")
    began = [entry["source"] for entry in codex.seen("SessionStart")]
    assert began == ["startup", "resume", "resume", "compact"]
    assert told(heard[-1])[0] == 1
    assert len(codex.seen("PreCompact")) == 1


def test_hooks_and_gateway_are_one_session(codex: Codex) -> None:
    codex.house.upwell("hook", "install", "codex", "--apply")
    settings = codex.folder / "config.toml"
    program, *args = script("upstream")
    entry = f"\n[mcp_servers.up]\ncommand = {json.dumps(program)}\nargs = {json.dumps(args)}\n"
    before = settings.read_text() + entry
    settings.write_text(before)
    moved_by_init(codex.house.home, codex.house.environment)
    heard = codex.ask("Both ways")
    *_, markdown = heard[-1].of("result")
    assert told(heard[-1])[2] == 1
    assert KEY.search(markdown)
    assert len(markdown) < 30_000
    calls = json.loads(codex.house.upwell("explain", "--json"))["decisions"]
    session = codex.seen("SessionStart")[0]["session_id"]
    assert {call["session"] for call in calls} == {session}
    assert "up__mixed" in {call.get("tool") for call in calls}
    codex.house.upwell("setup", "--undo", "--only", "servers", "--yes")
    assert settings.read_text() == before


def test_a_guard_refuses_a_command_once(codex: Codex) -> None:
    rule = "Ask before you publish"
    codex.house.upwell("rules", "add", "--guard", rule, "--tool", "Bash(touch published*)")
    codex.house.upwell("hook", "install", "codex", "--apply")
    first, second = codex.ask("Publish")[-1].of("result")
    assert rule in first
    assert rule not in second
    assert Path(codex.house.file("published.txt")).exists()


def test_the_agent_is_asked_once_what_it_learned(codex: Codex) -> None:
    (codex.house.home / "config.toml").write_text("capture.ask_agent = true\n")
    codex.house.upwell("hook", "install", "codex", "--apply")
    before, after = codex.ask("Repair")[-2:]
    assert "`python3` failed and then worked" not in before.text
    asked = [text for text in after.of("user") if "`python3` failed and then worked" in text]
    assert len(asked) == 1
