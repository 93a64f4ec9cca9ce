"""The agents themselves, from npm, each pinned and in a folder of its own below `.tools/live`.

Their programs run unchanged; no install script of a package is run.
"""

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.doors.npm.install import ROOT, node, npm

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
}


def command(name: str) -> Sequence[str]:
    """The command line that starts an agent, which is installed first if it is missing."""
    agent = AGENTS[name]
    folder = PREFIX / f"{name}-{agent.version}"
    program = folder / "node_modules" / agent.program
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"name": name, "private": True}))
        npm("install", "--save-exact", f"{agent.package}@{agent.version}", folder=folder)
    return [node(), str(program)] if agent.script else [str(program)]
