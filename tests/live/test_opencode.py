"""OpenCode itself, with our plugin.

Only the model is scripted; the tests check what it received."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.doors.conftest import script
from tests.doors.older import moved_by_init
from tests.live.conftest import FILE, PROMPT, RULE, Stage
from tests.live.install import command
from tests.live.model import Heard, Model, Script
from tests.live.talk import Call

pytestmark = pytest.mark.live
ASKED = "Service the lens rotation of the lighthouse: when?"
KEY = re.compile(r'key="([0-9a-f]{16})"')
LONG = "seq -f 'worker %.0f took a job' 1 1900"
QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_SHARE": "1",
}
Playing = Callable[[Script], Model]


class OpenCode:
    """OpenCode on a stage, with a configuration folder of its own."""

    def __init__(self, stage: Stage, model: Model) -> None:
        self.stage, self.model, self.house = stage, model, stage.house
        self.folder = stage.folder / "opencode"
        self.folder.mkdir()
        stage.house.environment["OPENCODE_CONFIG_DIR"] = str(self.folder)
        self.settings = self.folder / "opencode.json"
        self.settings.write_text(self.recording())

    def recording(self, **more: Any) -> str:
        """Settings with the scripted model as the only provider."""
        models = {"played": {"tool_call": True, "limit": {"context": 200_000, "output": 8_000}}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Played",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "nobody"},
            "models": models,
        }
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": "played/played",
            "small_model": "played/played",
            "permission": {"*": "allow"},
            "provider": {"played": provider},
            **more,
        }
        return "// mine\n" + json.dumps(settings, indent=2) + "\n"

    def ask(self, *words: str) -> list[Heard]:
        """Run it once. Returns the requests of the conversation, without those for a title."""
        before = len(self.model.heard)
        self.stage.run([*command("opencode"), "run", *words], self.model, QUIET)
        return [heard for heard in self.model.heard[before:] if heard.tools]


@pytest.fixture
def opencode(stage: Stage, playing: Playing) -> OpenCode:
    read = Call("read", {"filePath": stage.house.file("gauge.py")})
    listing = Call("bash", {"command": "ls src", "description": "List"})
    plays = {
        "Service the lens": [listing, read, read],
        "Run it": [
            Call("bash", {"command": LONG, "description": "Run"}),
            Call("up_big_markdown", {}),
        ],
        "Both ways": [
            read,
            Call("upwell_up__mixed", {"text": stage.house.file("gauge.py")}),
            Call("upwell_up__big_markdown", {}),
        ],
    }
    return OpenCode(stage, playing(plays))


def told(heard: Heard) -> list[int]:
    """How often the model received the rule, the prompt's memory, and the file's memory."""
    return [heard.text.count(words) for words in (RULE, PROMPT, FILE)]


def server() -> dict[str, Any]:
    return {"up": {"type": "local", "command": script("upstream"), "enabled": True}}


def test_the_output_of_the_plugin_reaches_the_model_once(opencode: OpenCode) -> None:
    opencode.house.upwell("hook", "install", "opencode", "--apply")
    heard = opencode.ask(ASKED)
    assert [told(entry) for entry in heard] == [[1, 1, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1]]
    words, added = next(entry for entry in heard[0].body["messages"] if entry["role"] == "user")[
        "content"
    ]
    assert ASKED in words["text"]
    assert RULE in added["text"]
    assert RULE not in words["text"], "the user's own words stay as they are"
    opencode.house.upwell("hook", "uninstall", "opencode", "--apply")
    assert not (opencode.folder / "plugins" / "upwell.js").exists()
    assert opencode.settings.read_text() == opencode.recording()


def test_a_session_continued_in_another_process_has_the_rule_once(opencode: OpenCode) -> None:
    opencode.house.upwell("hook", "install", "opencode", "--apply")
    opencode.ask(ASKED)
    assert told(opencode.ask("-c", "Go on")[-1]) == [1, 1, 1]


def test_long_answers_arrive_shortened(opencode: OpenCode) -> None:
    (opencode.house.home / "config.toml").write_text('hook.compress = ["opencode"]\n')
    opencode.settings.write_text(opencode.recording(mcp=server()))
    opencode.house.upwell("hook", "install", "opencode", "--apply")
    opencode.house.start()
    shell, markdown = opencode.ask("Run it")[-1].of("result")
    full = "\n".join(f"worker {n} took a job" for n in range(1, 1901))
    assert len(shell) < len(full) * 0.8
    key = KEY.search(shell)
    assert key
    assert opencode.house.upwell("read", key[1]).strip() == full
    assert KEY.search(markdown)


def test_plugin_and_gateway_are_one_session(opencode: OpenCode) -> None:
    opencode.settings.write_text(opencode.recording(mcp=server()))
    opencode.house.upwell("hook", "install", "opencode", "--apply")
    moved_by_init(opencode.house.home, opencode.house.environment)
    heard = opencode.ask("Both ways")
    *_, markdown = heard[-1].of("result")
    assert told(heard[-1])[2] == 1
    assert KEY.search(markdown)
    assert len(markdown) < 30_000
    calls = json.loads(opencode.house.upwell("explain", "--json"))["decisions"]
    assert len({call["session"] for call in calls}) == 1
    assert "up__mixed" in {call.get("tool") for call in calls}
    opencode.house.upwell("setup", "--undo", "--only", "servers", "--yes")
    assert opencode.settings.read_text() == opencode.recording(mcp=server())
