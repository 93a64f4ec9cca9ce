"""VS Code's agent. It has no way to add context to a prompt, so prompts are not answered;
and none to replace what a tool answered.

Source: the vscode-docs repository (hooks preview). Tools have names in snake_case, arguments in
camelCase.
"""

from upwell.hook.events.base import EventKind
from upwell.hook.events.nested import NestedHost

HOST = NestedHost(
    name="vscode",
    max_bytes=10_000,
    events={
        "SessionStart": EventKind.SESSION,
        "PostToolUse": EventKind.TOOL,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
    },
    readers={
        "read_file": "Read",
        "grep_search": "Grep",
        "semantic_search": "Grep",
        "file_search": "Glob",
        "list_dir": "LS",
        "run_in_terminal": "Bash",
        "fetch_webpage": "WebFetch",
    },
    servers=("mcp__", "mcp_"),
)
