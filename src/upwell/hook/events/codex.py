"""Codex CLI. Text over 2 500 tokens is spilled to a file; unknown keys make it drop the answer.

Source: its generated JSON schemas (0.155); `deny_unknown_fields` on every output.
"""

from upwell.hook.events.base import EventKind
from upwell.hook.events.nested import NestedHost

HOST = NestedHost(
    name="codex",
    max_bytes=7_500,
    events={
        "SessionStart": EventKind.SESSION,
        "UserPromptSubmit": EventKind.PROMPT,
        "PostToolUse": EventKind.TOOL,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
        "SessionEnd": EventKind.END,
    },
    readers={
        "Bash": "Bash",
        "shell": "Bash",
        "local_shell": "Bash",
        "exec_command": "Bash",
        "read_file": "Read",
        "grep_files": "Grep",
        "list_dir": "LS",
        "web_search": "WebSearch",
    },
)
"""2 500 tokens are at least 7 500 bytes: three to a token, since our estimate must not be below."""
