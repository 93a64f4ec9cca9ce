"""VS Code's agent. Its hooks cannot replace a tool's result. They cannot add context to a prompt
either, so upwell does not handle prompts. Tools have snake_case names and camelCase arguments.

Sources: the vscode-docs repository (hooks preview, custom instructions).
"""

from collections.abc import Mapping
from typing import Any

from upwell.hosts.base import AutoLoaded, Export, Host
from upwell.hosts.events import EventKind, HostEvent, HostEvents
from upwell.hosts.servers import ServerFile, applications_folder
from upwell.hosts.settings import JsonHooks


class VsCodeEvents(HostEvents):
    kinds: Mapping[str, EventKind] = {
        "SessionStart": EventKind.SESSION,
        "PreToolUse": EventKind.BEFORE,
        "PostToolUse": EventKind.TOOL,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
    }
    readers: Mapping[str, str] = {
        "read_file": "Read",
        "grep_search": "Grep",
        "semantic_search": "Grep",
        "file_search": "Glob",
        "list_dir": "LS",
        "run_in_terminal": "Bash",
        "fetch_webpage": "WebFetch",
    }
    server_marks = ("mcp__", "mcp_")

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        decision = super().question_output(event, question)
        return {"hookSpecificOutput": {"hookEventName": event.name, **decision}}


EVENTS = VsCodeEvents()
HOST = Host(
    name="vscode",
    clients=("visual studio code*",),
    title="VS Code",
    events=EVENTS,
    hooks=JsonHooks(
        host="vscode",
        variable="COPILOT_HOME",
        folder=".copilot",
        file="hooks/upwell-vscode.json",
        events=EVENTS,
        nested=False,
        next_step="reload the window; hooks are a preview feature of VS Code",
    ),
    servers=ServerFile(
        agent="vscode",
        file=lambda user: applications_folder(user) / "Code" / "User" / "mcp.json",
        tables=(("servers",),),
        shape="typed",
        project_file=".vscode/mcp.json",
    ),
    writers={
        "create_file": "Write",
        "replace_string_in_file": "Edit",
        "multi_replace_string_in_file": "Edit",
        "insert_edit_into_file": "Edit",
        "edit_notebook_file": "Edit",
        "apply_patch": "Edit",
    },
    export=Export(tool_name="mcp_upwell_{}", file=".github/copilot-instructions.md"),
    auto_loaded=AutoLoaded(
        folder=(".github/copilot-instructions.md", "AGENTS.md", "CLAUDE.md"),
        scoped=(".github/instructions/**/*.instructions.md", ".claude/rules/**/*.md"),
    ),
    shares_hooks=True,
)
