"""Codex CLI. Text over 2 500 tokens is spilled to a file; unknown keys make it drop the answer.

`continue: false` after a tool does not end the turn: its `reason` stands in place of what the tool
answered, and that is no failure; `updatedToolOutput` is refused.

Source: its generated JSON schemas (0.155), `deny_unknown_fields` on every output; on `continue` its
hooks page and `core/src/tools/registry.rs`.
"""

from collections.abc import Mapping
from typing import Any

from upwell.hook.events.base import Event, EventKind, block_texts
from upwell.hook.events.nested import NestedHost


def _own(tool: str, reply: Any) -> Any:
    """Texts only: what is put in place is one."""
    if isinstance(reply, str):
        return reply
    if not isinstance(reply, Mapping) or reply.get("isError"):
        return None
    blocks = block_texts(reply.get("content"))
    return "\n".join(block["text"] for block in blocks) if blocks else None


def _put(event: Event, reply: Any) -> Mapping[str, Any]:
    return {"continue": False, "stopReason": "upwell shortened it", "reason": reply}


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
    restores=True,
    own=_own,
    put=_put,
    reply_tokens=2_400,
)
"""2 500 tokens are at least 7 500 bytes: three to a token, since our estimate must not be below."""
