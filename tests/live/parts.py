"""How each agent plays the drill: its names for the tools, its settings and its command lines."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.doors.conftest import script
from tests.live.conftest import Stage
from tests.live.drill import (
    CORRECTION,
    DELEGATED,
    DONE,
    FAILING,
    FORKED,
    INSTRUCTIONS,
    LATER,
    PRINTED,
    QUESTION,
    WORKING,
)
from tests.live.install import ripgrep
from tests.live.model import Model, Script
from tests.live.talk import Call, Said
from tests.live.test_claude import TOOLS, Claude
from tests.live.test_codex import Codex
from tests.live.test_copilot import Copilot
from tests.live.test_gemini import Gemini
from tests.live.test_opencode import OpenCode

FAILURE = (
    "After TideTableMissing in check_tide.py run python3 src/import_tides.py: the tide table of "
    "the harbour was not imported"
)
"""A memory about the failing command."""
CHECK = f"import sys\nprint({PRINTED!r})\nsys.exit(3)\n"
SKILL = f"---\nname: tides\ndescription: How tides are measured\n---\n{INSTRUCTIONS}\n"
TIDES = "TIDES = []\n"
GREP = "grep -rn 'def gauge' src"
UP = script("upstream", "--protocol", "2025-06-18")
"""The MCP server `up`, in a version of the protocol that all agents speak."""


@dataclass(frozen=True)
class Part:
    """One agent's part.

    - `host`: the host's name for `upwell hook install`, and of its reader.
    - `calls`: the calls of the first turn, of a later turn and of the sub-agent, for a project.
    - `play`: has the agent play all turns.
    - `transcripts`: the files of the session below the stage's folder: a pattern, which must not
      match those of sub-agents.
    """

    host: str
    calls: Callable[[str], tuple[Sequence[Call], Sequence[Call], Sequence[Call]]]
    play: Callable[[Stage, Model], None]
    transcripts: str

    def script(self, root: str) -> Script:
        first, later, delegated = self.calls(root)
        return {
            "Service the lens": first,
            "never edit": later,
            "Measure the gauge": delegated,
            "count the ladders": [],
        }


def furnish(stage: Stage) -> None:
    """Add what the drill needs to a stage: the failing program, the memory about it, instructions
    and a skill."""
    project = stage.house.project
    (project / "src" / "generated").mkdir()
    (project / "src" / "check_tide.py").write_text(CHECK)
    for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md"):
        (project / name).write_text(f"# Rules\n{INSTRUCTIONS}\n")
    for folder in (".claude", ".agents"):
        skill = project / folder / "skills" / "tides" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(SKILL)
    stage.house.keep([{"id": "failure", "text": FAILURE, "created_at": "2026-01-02"}])


def _gauge(root: str) -> str:
    return f"{root}/src/gauge.py"


def _tides(root: str) -> str:
    return f"{root}/src/generated/tides.py"


def _changing(root: str) -> str:
    """A patch that changes a file."""
    lines = f"*** Update File: {_gauge(root)}\n@@\n-    return 3\n+    return 4\n"
    return f"*** Begin Patch\n{lines}*** End Patch\n"


def _adding(root: str) -> str:
    """A patch that adds a file."""
    return f"*** Begin Patch\n*** Add File: {_tides(root)}\n+{TIDES}*** End Patch\n"


Calls = tuple[Sequence[Call], Sequence[Call], Sequence[Call]]


def _of_claude(root: str) -> Calls:
    def bash(words: str) -> Call:
        return Call("Bash", {"command": words, "description": "Run"})

    read = Call("Read", {"file_path": _gauge(root)})
    change = {"old_string": "return 3", "new_string": "return 4"}
    agent = {"description": "Look", "prompt": DELEGATED, "run_in_background": False}
    first = [
        bash(FAILING),
        bash(WORKING),
        read,
        Call("Edit", {"file_path": _gauge(root), **change}),
        Call("Write", {"file_path": _tides(root), "content": TIDES}),
        Call("Grep", {"pattern": "def gauge"}),
        Call("ToolSearch", {"query": "select:mcp__up__say,mcp__up__fail"}),
        Call("mcp__up__say", {"text": "ahoy"}),
        Call("mcp__up__fail", {}),
        Call("Agent", {**agent, "subagent_type": "Explore"}),
        Call("Skill", {"skill": "tides"}),
    ]
    return first, [bash(LATER)], [read]


def _play_claude(stage: Stage, model: Model) -> None:
    agent = Claude(stage, model)
    server = {"type": "stdio", "command": UP[0], "args": UP[1:], "env": {}}
    (agent.folder / ".claude.json").write_text(json.dumps({"mcpServers": {"up": server}}))
    stage.house.upwell("hook", "install", "claude", "--apply")
    allowed = ("--allowedTools", f"{TOOLS} Edit Skill mcp__up__*")
    agent.ask(*allowed, "-p", QUESTION)
    agent.ask(*allowed, "-c", "-p", CORRECTION)
    agent.ask(*allowed, "-c", "--fork-session", "-p", FORKED)


def _of_codex(root: str) -> Calls:
    def run(words: str) -> Call:
        return Call("exec_command", {"cmd": words})

    read = run("cat src/gauge.py")
    first = [
        run(FAILING),
        run(WORKING),
        read,
        Call("apply_patch", _changing(root)),
        Call("apply_patch", _adding(root)),
        run(GREP),
        Call("mcp__up/say", {"text": "ahoy"}),
        Call("mcp__up/fail", {}),
        Call("multi_agent_v1/spawn_agent", {"message": DELEGATED}),
        Call("multi_agent_v1/wait_agent", lambda dialogue: {"targets": [_agent_in(dialogue)]}),
    ]
    return first, [run(LATER)], [read]


def _agent_in(dialogue: Sequence[Said]) -> str:
    """The id of the sub-agent that was started last."""
    *_, started = (part.text for part in dialogue if "agent_id" in part.text)
    return str(json.loads(started)["agent_id"])


def _of_codex_code(root: str) -> Calls:
    """Programs that call the tools."""

    def program(words: str) -> Call:
        return Call("exec", words)

    def run(words: str) -> Call:
        command = json.dumps({"cmd": words})
        return program(f"const r = await tools.exec_command({command}); text(r.output);")

    def patch(words: str) -> Call:
        return program(f"text(await tools.apply_patch({json.dumps(words)}));")

    first = [
        run(FAILING),
        run(WORKING),
        run("cat src/gauge.py"),
        patch(_changing(root)),
        patch(_adding(root)),
        run(GREP),
        program('text(JSON.stringify(await tools.mcp__up__say({text: "ahoy"})));'),
        program("text(JSON.stringify(await tools.mcp__up__fail({})));"),
    ]
    return first, [run(LATER)], []


def _play_codex(name: str) -> Callable[[Stage, Model], None]:
    def play(stage: Stage, model: Model) -> None:
        agent = Codex(stage, model)
        program, *args = map(json.dumps, UP)
        server = f"\n[mcp_servers.up]\ncommand = {program}\nargs = [{', '.join(args)}]\n"
        settings = agent.folder / "config.toml"
        settings.write_text(settings.read_text().replace("gpt-5.4-codex", name) + server)
        stage.house.upwell("hook", "install", "codex", "--apply")
        agent.ask(f"$tides {QUESTION}")
        agent.ask("resume", "--last", CORRECTION)

    return play


def _of_copilot(root: str) -> Calls:
    def bash(words: str) -> Call:
        return Call("bash", {"command": words, "description": "Run", "mode": "sync"})

    read = Call("view", {"path": _gauge(root)})
    agent = {"description": "Look", "prompt": DELEGATED, "name": "looker", "mode": "sync"}
    first = [
        bash(FAILING),
        bash(WORKING),
        read,
        Call("apply_patch", _changing(root)),
        Call("apply_patch", _adding(root)),
        Call("rg", {"pattern": "def gauge"}),
        Call("up-say", {"text": "ahoy"}),
        Call("up-fail", {}),
        Call("task", {**agent, "agent_type": "explore"}),
        Call("skill", {"skill": "tides"}),
    ]
    return first, [bash(LATER)], [read]


def _play_copilot(stage: Stage, model: Model) -> None:
    agent = Copilot(stage, model)
    server = {"type": "local", "command": UP[0], "args": UP[1:], "tools": ["*"]}
    (agent.folder / "mcp-config.json").write_text(json.dumps({"mcpServers": {"up": server}}))
    stage.house.upwell("hook", "install", "copilot", "--apply")
    agent.ask("-p", QUESTION)
    agent.ask("--continue", "-p", CORRECTION)


def _of_gemini(root: str) -> Calls:
    def run(words: str) -> Call:
        return Call("run_shell_command", {"command": words})

    read = Call("read_file", {"file_path": _gauge(root)})
    change = {"instruction": "Return four", "old_string": "return 3", "new_string": "return 4"}
    first = [
        run(FAILING),
        run(WORKING),
        read,
        Call("replace", {"file_path": _gauge(root), **change}),
        Call("write_file", {"file_path": _tides(root), "content": TIDES}),
        Call("grep_search", {"pattern": "def gauge"}),
        Call("mcp_up_say", {"text": "ahoy"}),
        Call("mcp_up_fail", {}),
        Call("invoke_agent", {"agent_name": "generalist", "prompt": DELEGATED}),
        Call("activate_skill", {"name": "tides"}),
    ]
    delegated = [read, Call("complete_task", {"result": {"response": DONE}})]
    return first, [run(LATER)], delegated


def _play_gemini(stage: Stage, model: Model) -> None:
    agent = Gemini(stage, model)
    server = {"command": UP[0], "args": UP[1:]}
    agent.settings.write_text(agent.recording(mcpServers={"up": server}))
    stage.house.upwell("hook", "install", "gemini", "--apply")
    agent.ask("-p", f"{QUESTION} @src/gauge.py")
    agent.ask("-r", "latest", "-p", CORRECTION)


def _of_opencode(root: str) -> Calls:
    def bash(words: str) -> Call:
        return Call("bash", {"command": words, "description": "Run"})

    file = {"filePath": _gauge(root)}
    agent = {"description": "Look", "prompt": DELEGATED, "subagent_type": "general"}
    first = [
        bash(FAILING),
        bash(WORKING),
        Call("read", file),
        Call("edit", {**file, "oldString": "return 3", "newString": "return 4"}),
        Call("write", {"filePath": _tides(root), "content": TIDES}),
        Call("grep", {"pattern": "def gauge"}),
        Call("up_say", {"text": "ahoy"}),
        Call("up_fail", {}),
        Call("task", agent),
        Call("skill", {"name": "tides"}),
    ]
    return first, [bash(LATER)], [Call("read", file)]


def _play_opencode(stage: Stage, model: Model) -> None:
    """A prompt in several words, because OpenCode puts quotes around a word with spaces."""
    agent = OpenCode(stage, model)
    server = {"type": "local", "command": UP, "enabled": True}
    agent.settings.write_text(agent.recording(mcp={"up": server}))
    stage.house.upwell("hook", "install", "opencode", "--apply")
    _bring_ripgrep(stage.folder / "user" / ".cache" / "opencode" / "bin")
    agent.ask(*QUESTION.split())
    agent.ask("-c", *CORRECTION.split())


def _bring_ripgrep(folder: Path) -> None:
    """OpenCode would download this program, which Codex brings along."""
    folder.mkdir(parents=True)
    (folder / "rg").symlink_to(ripgrep())


ROLLOUTS = "codex/sessions/*/*/*/rollout-*.jsonl"
PARTS: Mapping[str, Part] = {
    "claude": Part("claude", _of_claude, _play_claude, "claude/projects/*/*.jsonl"),
    "codex": Part("codex", _of_codex, _play_codex("gpt-5.5"), ROLLOUTS),
    "codex-code": Part("codex", _of_codex_code, _play_codex("gpt-6-sol"), ROLLOUTS),
    "copilot": Part("copilot", _of_copilot, _play_copilot, "copilot/session-state/*/events.jsonl"),
    "gemini": Part("gemini", _of_gemini, _play_gemini, "user/.gemini/tmp/*/chats/session-*.jsonl"),
    "opencode": Part(
        "opencode", _of_opencode, _play_opencode, "user/.local/share/opencode/opencode.db"
    ),
}
