"""Claude Code. Context over 10 000 characters goes into a file with a preview, so we stay below.

Source: its hooks reference (2.1.278) as quoted in research; `tool_response` differs by tool.
"""

from upwell.hook.events.base import EventKind
from upwell.hook.events.nested import NestedHost

HOST = NestedHost(
    name="claude",
    max_bytes=10_000,
    events={
        "SessionStart": EventKind.SESSION,
        "UserPromptSubmit": EventKind.PROMPT,
        "PostToolUse": EventKind.TOOL,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
        "SessionEnd": EventKind.END,
    },
    readers={
        name: name
        for name in ("Read", "Grep", "Glob", "LS", "Bash", "WebFetch", "WebSearch", "NotebookRead")
    },
)
