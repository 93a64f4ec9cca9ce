"""What can be handed to an agent without touching its configuration: a Claude Code plugin, and the
instruction for agents that have no hooks."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from upwell import __version__
from upwell.ground.errors import UsageError
from upwell.hosts.agents import AGENTS, CLAUDE
from upwell.hosts.base import Where

TOOL_NAMES: Mapping[str, str] = {
    "claude": "mcp__upwell__upwell__{}",
    "codex": "mcp__upwell__upwell__{}",
    "gemini": "mcp_upwell_upwell__{}",
    "cursor": "upwell__{}",
    "copilot": "upwell-upwell__{}",
    "vscode": "mcp_upwell_upwell__{}",
    "opencode": "upwell_upwell__{}",
}
"""How a host shows a tool of the gateway, which stands in its configuration as `upwell`."""
INSTRUCTION_FILES: Mapping[str, str] = {
    "claude": "CLAUDE.md",
    "gemini": "GEMINI.md",
    "cursor": ".cursor/rules/upwell.mdc",
    "copilot": ".github/copilot-instructions.md",
    "vscode": ".github/copilot-instructions.md",
}
_INSTRUCTION = """\
## Memory

At the start of every substantive turn, call `{context}` with the user's message: it gives a short
digest of what is already known, and says so when there is nothing. It answers trivial messages
(greetings, acknowledgements, slash commands) at once with `applicable: false`, so calling it is
always safe. Entries are notes from earlier work: use what helps, ignore what does not.

Use `{search}` directly instead when
- the exact query is known ("what did we decide about retries"),
- more results are wanted than a digest holds,
- something is looked up for a tool's own use and not for the conversation.

`{get}` gives the full text behind a citation.
"""
_IN_THE_PLUGIN = """
Where upwell came as a plugin, its tools begin with `mcp__plugin_upwell_upwell__` in place of
`mcp__upwell__`.
"""


def exported(host: str, where: Where) -> dict[str, str]:
    """Files by relative path: the plugin for Claude Code, an instruction for every host.

    Raises:
        UsageError: there is no such host.
    """
    if host not in AGENTS:
        raise UsageError(f"no host is called {host[:40]!r}", hint=f"one of {', '.join(AGENTS)}")
    files = {INSTRUCTION_FILES.get(host, "AGENTS.md"): instruction(host)}
    return {**files, **_plugin(where)} if host == "claude" else files


def instruction(host: str) -> str:
    """The turn-start reflex (seed 003) in words, with the tools' names as the host shows them."""
    name = TOOL_NAMES[host].format
    text = _INSTRUCTION.format(
        context=name("memory_context"), search=name("memory_search"), get=name("memory_get")
    )
    if host == "claude":
        return text + _IN_THE_PLUGIN
    if host == "cursor":
        return f"---\ndescription: Memory\nalwaysApply: true\n---\n{text}"
    return text


def _plugin(where: Where) -> dict[str, str]:
    """A folder that `claude --plugin-dir` takes."""
    hooks = json.loads(CLAUDE.added("", where))["hooks"]
    about = "Puts what is already known in front of the agent, unasked."
    return {
        "upwell-plugin/.claude-plugin/plugin.json": _json(
            {"name": "upwell", "version": __version__, "description": about}
        ),
        "upwell-plugin/hooks/hooks.json": _json({"description": about, "hooks": hooks}),
        "upwell-plugin/.mcp.json": _json(
            {"mcpServers": {"upwell": {"type": "stdio", **_serve(where)}}}
        ),
    }


def _serve(where: Where) -> dict[str, object]:
    env = {"env": {"UPWELL_HOME": where.home}} if where.home else {}
    return {"command": where.command[0], "args": ["-P", "-m", "upwell", "serve"], **env}


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write them below `folder`. What is there is not replaced.

    Raises:
        UsageError: one of them exists with other content.
    """
    wanted = {folder / name: text for name, text in files.items()}
    for path, text in wanted.items():
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise UsageError(
                f"{path} exists already", hint="print it without --apply, and put it in by hand"
            )
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(wanted)


def shown(files: Mapping[str, str]) -> str:
    """All of them as one text."""
    return "\n".join(f"==> {shlex.quote(name)} <==\n{text}" for name, text in files.items())


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
