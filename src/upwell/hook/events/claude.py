"""Claude Code. Context over 10 000 characters goes into a file with a preview, so we stay below.

A tool's answer can be replaced since 2.1.121, by one of the same shape: an object for Bash, a list
of content blocks for tools of MCP servers; another shape is dropped, or ends the host.

Source: its hooks reference (2.1.278) as quoted in research; `tool_response` differs by tool.
"""

from collections.abc import Mapping
from typing import Any

from upwell.hook.events.base import Event, EventKind
from upwell.hook.events.nested import NestedHost

_UNLIKE_TEXT = ("interrupted", "isImage", "backgroundTaskId", "persistedOutputPath")
"""What is kept on disk is cut there, and the model gets a short piece of it with the path."""


def _own(tool: str, reply: Any) -> Any:
    if tool.startswith("mcp__"):
        return reply if isinstance(reply, list) else None
    if not isinstance(reply, Mapping):
        return reply if isinstance(reply, str) else None
    return None if any(reply.get(key) for key in _UNLIKE_TEXT) else reply


def _put(event: Event, reply: Any) -> Mapping[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event.name, "updatedToolOutput": reply}}


HOST = NestedHost(
    name="claude",
    max_bytes=10_000,
    events={
        "SessionStart": EventKind.SESSION,
        "UserPromptSubmit": EventKind.PROMPT,
        "PostToolUse": EventKind.TOOL,
        "PostToolUseFailure": EventKind.TOOL,
        "SubagentStart": EventKind.SESSION,
        "SubagentStop": EventKind.END,
        "PreCompact": EventKind.COMPACT,
        "Stop": EventKind.STOP,
        "SessionEnd": EventKind.END,
    },
    readers={
        name: name
        for name in ("Read", "Grep", "Glob", "LS", "Bash", "WebFetch", "WebSearch", "NotebookRead")
    },
    restores=True,
    made_up="<task-notification>",
    own=_own,
    put=_put,
)
