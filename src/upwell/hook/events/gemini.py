"""Gemini CLI. Stdout must be JSON and nothing else. It documents no limit; we keep to 10 000 bytes.

What a tool answered cannot be replaced: `decision: deny` makes a failed call of it ("Tool result
blocked: …"), which the model would act on.

Source: its repository's hooks documentation (2026-08).
"""

from upwell.hook.events.base import EventKind
from upwell.hook.events.nested import NestedHost

HOST = NestedHost(
    name="gemini",
    max_bytes=10_000,
    events={
        "SessionStart": EventKind.SESSION,
        "BeforeAgent": EventKind.PROMPT,
        "AfterTool": EventKind.TOOL,
        "PreCompress": EventKind.COMPACT,
        "AfterAgent": EventKind.STOP,
        "SessionEnd": EventKind.END,
    },
    readers={
        "read_file": "Read",
        "read_many_files": "Read",
        "search_file_content": "Grep",
        "grep_search": "Grep",
        "glob": "Glob",
        "list_directory": "LS",
        "run_shell_command": "Bash",
        "web_fetch": "WebFetch",
        "google_web_search": "WebSearch",
    },
    servers=("mcp_",),
)
