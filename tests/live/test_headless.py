"""Asking the model of each agent from npm, as upwell does to have lessons written.

The agent runs unchanged, in a home with the user's hooks, MCP servers and instructions. Only the
model is scripted; the tests check what it received, and that nothing else ran.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.live.conftest import fenced
from tests.live.install import PREFIX, command
from tests.live.model import Model, Script
from tests.live.talk import DONE
from upwell.ground.clock import Deadline
from upwell.ground.llm import Invocation
from upwell.ground.pause import HEADLESS_FOLDER
from upwell.hosts import HOSTS
from upwell.hosts.base import HeadlessQuestion, server_names
from upwell.hosts.installation import Installation
from upwell.wire.headless import HeadlessChat

pytestmark = pytest.mark.live
QUESTION = "What did this session teach? Count the ladders."
SYSTEM = "Write lessons about ladders, one a line."
USERS = "The user's own instructions"
RUN_SECONDS = 120.0
Playing = Callable[[Script], Model]


@dataclass
class User:
    """A user's home with an agent that is set up: hooks and an MCP server that leave a mark."""

    home: Path
    model: Model
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def marks(self) -> list[str]:
        return sorted(path.name for path in (self.home / "marks").iterdir())

    def leaves(self, mark: str) -> str:
        return f"touch {shlex.quote(str(self.home / 'marks' / mark))}"

    def write(self, name: str, content: object) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def nested_hooks(self, *events: str) -> object:
        return {
            event: [{"hooks": [{"type": "command", "command": self.leaves(event)}]}]
            for event in events
        }

    @property
    def server(self) -> Mapping[str, object]:
        return {"command": "sh", "args": ["-c", f"{self.leaves('server')}; sleep 1"]}


def claude(user: User) -> None:
    hooks = user.nested_hooks("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd")
    user.write(".claude/settings.json", {"hooks": hooks})
    user.write(".claude/CLAUDE.md", USERS)
    user.write(".claude.json", {"mcpServers": {"up": user.server}})
    user.variables |= {
        "ANTHROPIC_API_KEY": "sk-ant-nobody",
        "ANTHROPIC_BASE_URL": user.model.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex(user: User) -> None:
    args = json.dumps(["-c", f"{user.leaves('server')}; sleep 1"])
    user.write(
        ".codex/config.toml",
        f'model = "gpt-5.4-codex"\nmodel_provider = "played"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.played]\nname = "Played"\nbase_url = "{user.model.url}/v1"\n'
        'wire_api = "responses"\n[analytics]\nenabled = false\n'
        f'[mcp_servers.up]\ncommand = "sh"\nargs = {args}\n',
    )
    hooks = user.nested_hooks("SessionStart", "UserPromptSubmit", "Stop")
    user.write(".codex/hooks.json", {"hooks": hooks})


def gemini(user: User) -> None:
    user.write(".gemini/GEMINI.md", USERS)
    user.write(
        ".gemini/settings.json",
        {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "mcpServers": {"up": user.server},
            "hooks": user.nested_hooks("SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"),
        },
    )
    user.variables |= {"GEMINI_API_KEY": "nobody", "GOOGLE_GEMINI_BASE_URL": user.model.url}


def opencode(user: User) -> None:
    run = f'require("child_process").execSync({json.dumps(user.leaves("plugin"))})'
    plugin = f"export const Mine = async () => {{ {run}; return {{}} }}\n"
    serve = f"{user.leaves('server')}; sleep 1"
    folder = ".config/opencode"
    user.write(f"{folder}/plugin/mine.js", plugin)
    user.write(
        f"{folder}/opencode.json",
        {
            "autoupdate": False,
            "model": "played/played",
            "small_model": "played/played",
            "mcp": {"up": {"type": "local", "command": ["sh", "-c", serve]}},
            "provider": {
                "played": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "Played",
                    "options": {"baseURL": f"{user.model.url}/v1", "apiKey": "nobody"},
                    "models": {"played": {"limit": {"context": 200_000, "output": 8_000}}},
                }
            },
        },
    )
    user.variables |= {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def copilot(user: User) -> None:
    hooks = {
        event: [{"type": "command", "bash": user.leaves(event)}]
        for event in ("sessionStart", "userPromptSubmitted", "agentStop", "sessionEnd")
    }
    user.write(".copilot/hooks/mine.json", {"version": 1, "hooks": hooks})
    server = {"type": "local", "tools": ["*"], **user.server}
    user.write(".copilot/mcp-config.json", {"mcpServers": {"up": server}})
    user.variables |= {
        "COPILOT_OFFLINE": "true",
        "COPILOT_MODEL": "gpt-5.4",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_PROVIDER_BASE_URL": f"{user.model.url}/v1",
    }


SETUPS = {setup.__name__: setup for setup in (claude, codex, gemini, opencode, copilot)}


@pytest.fixture
def user(tmp_path: Path, playing: Playing, request: pytest.FixtureRequest) -> User:
    home = tmp_path / "home"
    (home / "marks").mkdir(parents=True)
    user = User(home, playing({}))
    SETUPS[request.param](user)
    return user


def chat_of(name: str, user: User, program: str = "") -> HeadlessChat:
    host = HOSTS[name]
    assert host.headless is not None
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(user.home),
        **fenced(user.model),
        **user.variables,
    }
    installation = Installation(user_folder=user.home, environment=environment, command=())
    servers = server_names(host.headless.servers or host.servers, installation)
    assert servers == ["up"]
    headless = host.headless
    # Gemini CLI trusts settings only in a folder that nobody else can write to, so not in /tmp.
    upwell = PREFIX / "upwell" / name
    upwell.mkdir(mode=0o700, parents=True, exist_ok=True)
    first, *rest = command(name)

    def invoke(system: str, folder: Path) -> Invocation:
        question = HeadlessQuestion(
            system=system, model=headless.model, folder=folder, servers=servers
        )
        invocation = headless.invoke(question)
        return Invocation(
            args=(*rest, *invocation.args), env=invocation.env, files=invocation.files
        )

    return HeadlessChat(first, invoke, headless.answer, upwell / HEADLESS_FOLDER, environment)


@pytest.mark.parametrize(("user", "name"), [(n, n) for n in SETUPS], indirect=["user"])
def test_the_model_gets_the_question_and_nothing_else_runs(user: User, name: str) -> None:
    completion = chat_of(name, user).complete(SYSTEM, QUESTION, Deadline.after(RUN_SECONDS))
    assert completion.text.strip() == DONE
    assert completion.tokens_in > 0
    asked = user.model.about("ladders")
    assert len(asked) == 1
    assert SYSTEM in asked[0].text
    assert [tool for tool in asked[0].tools if tool] == []
    assert user.marks == []
    kept = [*user.home.glob(".claude/projects/*/*"), *user.home.glob(".codex/sessions/**/*")]
    assert kept == []
