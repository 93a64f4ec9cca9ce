"""The agents themselves and the tool for MCP bundles, from npm, each pinned and in a folder of its
own below `.tools/live`.

Their programs run unchanged; no install script of a package is run.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.doors.npm.install import ROOT, NpmFailed, node, npm

PREFIX = ROOT / ".tools" / "live"
_SYSTEM = platform.system().lower()
_CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


@dataclass(frozen=True)
class Agent:
    """A package of npm, and the program below `node_modules`; `script` means that Node has to run
    it.
    """

    package: str
    version: str
    program: str
    script: bool = False


AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        "@anthropic-ai/claude-code",
        "2.1.332",
        f"@anthropic-ai/claude-code-{_SYSTEM}-{_CPU}/claude",
    ),
    "copilot": Agent(
        "@github/copilot",
        "1.0.102",
        f"@github/copilot-{_SYSTEM}-{_CPU}/copilot",
    ),
    "codex": Agent("@openai/codex", "0.171.0", "@openai/codex/bin/codex.js", script=True),
    "gemini": Agent("@google/gemini-cli", "0.61.0", "@google/gemini-cli/bundle/gemini.js", True),
    "opencode": Agent("opencode-ai", "1.18.33", f"opencode-{_SYSTEM}-{_CPU}/bin/opencode"),
    "mcpb": Agent("@anthropic-ai/mcpb", "2.1.2", "@anthropic-ai/mcpb/dist/cli/cli.js", True),
}


def command(name: str) -> Sequence[str]:
    """The command line that starts an agent, which is installed first if it is missing."""
    agent = AGENTS[name]
    program = _installed(name) / "node_modules" / agent.program
    return [node(), str(program)] if agent.script else [str(program)]


def ripgrep() -> Path:
    """The program `rg`, which is part of Codex."""
    (program,) = _installed("codex").glob("node_modules/@openai/*/vendor/*/codex-path/rg")
    return program


def newer() -> list[str]:
    """One line for each agent of which npm has another version than the pinned one, or about which
    npm does not answer."""
    lines = []
    for name, agent in AGENTS.items():
        try:
            newest = npm("view", agent.package, "version", folder=PREFIX).strip()
        except NpmFailed as error:
            lines.append(f"{name}: {' '.join(str(error).split())[:200]}")
            continue
        if newest != agent.version:
            lines.append(f"{name}: npm has {newest}, the recordings are of {agent.version}")
    return lines


def _installed(name: str) -> Path:
    agent = AGENTS[name]
    folder = PREFIX / f"{name}-{agent.version}"
    if not (folder / "node_modules" / agent.program).exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "private": True}))
        npm("install", "--save-exact", f"{agent.package}@{agent.version}", folder=folder)
    return folder
