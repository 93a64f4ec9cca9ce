"""Claude Code; and of Claude Desktop, an MCP client without hooks, the file that lists its servers.

Claude Code moves context of more than 10,000 characters into a file and shows a preview, so our
output stays below that limit. Since 2.1.121 a hook can replace a tool's result with one of the same
shape: an object for Bash, a list of content blocks for MCP tools. If the shape differs, Claude Code
drops the replacement or ends the session.

Sources: its documentation of hooks (2.1.278), settings and memory files; recordings of 2.1.330 for
`tool_response`, whose shape depends on the tool.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from upwell.ground.errors import LlmError
from upwell.ground.llm import Invocation
from upwell.hosts.base import (
    AutoLoaded,
    Export,
    Headless,
    HeadlessQuestion,
    Host,
    document_in,
    number_at,
    text_at,
)
from upwell.hosts.events import EventKind, HostEvent, HostEvents
from upwell.hosts.installation import Installation
from upwell.hosts.jsonc import object_in
from upwell.hosts.servers import ServerFile, applications_folder
from upwell.hosts.settings import JsonHooks

DESKTOP_SERVERS = ServerFile(
    agent="claude-desktop",
    file=lambda user: applications_folder(user) / "Claude" / "claude_desktop_config.json",
)


_READERS = ("Read", "Grep", "Glob", "LS", "Bash", "WebFetch", "WebSearch", "NotebookRead")
_NOT_PLAIN_TEXT = ("interrupted", "isImage", "backgroundTaskId", "persistedOutputPath")
"""A result in which one of these is set is not plain text. For example, Claude Code writes a long
result to disk and gives the model an excerpt and the path.
"""
_MATCHER = "|".join((*_READERS, "mcp__.*"))
MANAGED_FOLDERS = (Path("/etc/claude-code"), Path("/Library/Application Support/ClaudeCode"))
"""The folders for an organisation's settings on Linux and macOS. They hold `managed-settings.json`
and additional files in `managed-settings.d`."""
_PROJECT_SETTINGS = ("settings.json", "settings.local.json")


class ClaudeEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "SessionStart": EventKind.SESSION,
        "UserPromptSubmit": EventKind.PROMPT,
        "PreToolUse": EventKind.BEFORE,
        "PostToolUse": EventKind.TOOL,
        "PostToolUseFailure": EventKind.TOOL,
        "SubagentStart": EventKind.SESSION,
        "SubagentStop": EventKind.END,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
        "SessionEnd": EventKind.END,
    }
    readers: Mapping[str, str] = {name: name for name in _READERS}
    restores_context = True
    inserts = "claude"

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        reply = payload.get("tool_response")
        if called.startswith("mcp__"):
            return reply if isinstance(reply, list) else None
        if not isinstance(reply, Mapping):
            return reply if isinstance(reply, str) else None
        return None if any(reply.get(key) for key in _NOT_PLAIN_TEXT) else reply

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return {"hookSpecificOutput": {"hookEventName": event.name, "updatedToolOutput": reply}}


EVENTS = ClaudeEvents()
HOOKS = JsonHooks(
    host="claude",
    variable="CLAUDE_CONFIG_DIR",
    folder=".claude",
    file="settings.json",
    trace=".claude.json",
    events=EVENTS,
    patterns={
        "PreToolUse": "Bash|mcp__.*",
        "PostToolUse": _MATCHER,
        "PostToolUseFailure": _MATCHER,
    },
    unused=("PreCompact",),
    token_from_environment=True,
    http_setup='export UPWELL_TOKEN="$(cat {token_file})"',
    next_step="restart Claude Code; `/hooks` lists them",
)


def _hooks_off(installation: Installation, folder: Path) -> str:
    """The setting that makes Claude Code ignore our hooks. An organisation can allow only its own
    hooks, and any settings file can switch off all hooks."""
    for managed in MANAGED_FOLDERS:
        extra = sorted(managed.glob("managed-settings.d/*.json"))
        for file in (managed / "managed-settings.json", *extra):
            settings = object_in(file)
            for key in ("disableAllHooks", "allowManagedHooksOnly"):
                if settings.get(key) is True:
                    return f"{key} in {file}, a setting of your organisation"
    own = installation.folder_named("CLAUDE_CONFIG_DIR", ".claude")
    project = folder / ".claude"
    for file in (own / "settings.json", *map(project.joinpath, _PROJECT_SETTINGS)):
        if object_in(file).get("disableAllHooks") is True:
            return f"disableAllHooks in {file}"
    return ""


def _invoke(question: HeadlessQuestion) -> Invocation:
    """Safe mode turns off hooks, plugins, skills, CLAUDE.md and MCP servers, but not the user's
    account. Its variable, unlike its flag, does not stop an earlier version."""
    model = ("--model", question.model) if question.model else ()
    return Invocation(
        args=(
            *("-p", *model, "--output-format", "json", "--system-prompt", question.system),
            *("--tools", "", "--strict-mcp-config", "--no-session-persistence"),
            *("--disable-slash-commands", "--settings", '{"disableAllHooks": true}'),
        ),
        env={"CLAUDE_CODE_SAFE_MODE": "1"},
    )


def _answer(output: str) -> tuple[str, int, int]:
    result = document_in(output)
    if result.get("is_error"):
        raise LlmError(f"claude failed: {text_at(result, 'result')[:200]}")
    kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens_in = sum(number_at(result, "usage", kind) for kind in kinds)
    return text_at(result, "result"), tokens_in, number_at(result, "usage", "output_tokens")


HOST = Host(
    name="claude",
    clients=("claude-code",),
    title="Claude Code",
    events=EVENTS,
    hooks=HOOKS,
    writers={"Write": "Write", "Edit": "Edit", "MultiEdit": "Edit", "NotebookEdit": "NotebookEdit"},
    servers=ServerFile(
        agent="claude",
        file=lambda user: user.folder_named("CLAUDE_CONFIG_DIR", "") / ".claude.json",
        folder=lambda user: user.folder_named("CLAUDE_CONFIG_DIR", ".claude"),
        shape="typed",
        project_file=".mcp.json",
        holds_projects=True,
    ),
    export=Export(
        tool_name="mcp__upwell__{}",
        file="CLAUDE.md",
        layout="{}\nIf upwell was installed as a plugin, its tools begin with\n"
        "`mcp__plugin_upwell_upwell__` instead of `mcp__upwell__`.\n",
        plugin_tool_name="mcp__plugin_upwell_upwell__{}",
    ),
    auto_loaded=AutoLoaded(
        user=(".claude/CLAUDE.md",),
        folder=("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md"),
        fallback=("AGENTS.md", ".claude/AGENTS.md"),
        scoped=(".claude/rules/**/*.md",),
        follows_imports=True,
        user_imports_anywhere=True,
    ),
    transcripts=(".claude/projects/*/*.jsonl",),
    hooks_off=_hooks_off,
    headless=Headless(program="claude", model="haiku", invoke=_invoke, answer=_answer),
    shares_hooks=True,
)
