"""Cursor. Context over 10 000 characters is dropped; answers are flat, with keys in snake_case.

Source: notes on its bundle (CLI 2026.09.18) and its documentation. Tools of MCP servers are
`MCP:tool` without their server's name, so those of upwell are known by their own names. Only what
such a tool answered can be replaced: `tool_output` is JSON in a string.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from upwell.hook.events.base import (
    Event,
    EventKind,
    folder_of,
    plain_args,
    session_of,
    size_of,
    table_of,
    text_of,
)

_MCP = "MCP:"
_READERS = {
    "Read": "Read",
    "read_file": "Read",
    "Grep": "Grep",
    "Glob": "Glob",
    "LS": "LS",
    "Shell": "Bash",
    "Bash": "Bash",
    "SemanticSearch": "Grep",
    "WebFetch": "WebFetch",
    "WebSearch": "WebSearch",
}


class CursorHost:
    """Events by `hook_event_name`, the session by `conversation_id`."""

    name = "cursor"
    max_bytes = 10_000
    reply_tokens: int | None = None
    events: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION,
        "beforeSubmitPrompt": EventKind.PROMPT,
        "postToolUse": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "stop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.events.get(name)
        if kind is None:
            return None
        session = session_of(payload.get("conversation_id") or payload.get("session_id"))
        cwd = folder_of(payload.get("cwd")) or _workspace(payload.get("workspace_roots"))
        if kind is EventKind.TOOL:
            return _call(name, payload, session, cwd)
        text = text_of(payload.get("prompt")) if kind is EventKind.PROMPT else ""
        return Event(kind=kind, name=name, session=session, cwd=cwd, text=text)

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        return {"additional_context": text}

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        return {"updated_mcp_tool_output": reply}


def _call(name: str, payload: Mapping[str, Any], session: str, cwd: str | None) -> Event | None:
    called = text_of(payload.get("tool_name"), 200)
    tool = _READERS.get(called, "")
    if called.startswith(_MCP):
        bare = called.removeprefix(_MCP)
        tool = "" if "__" in bare else bare
    if not tool:
        return None
    return Event(
        kind=EventKind.TOOL,
        name=name,
        session=session,
        cwd=cwd,
        tool=tool,
        args=plain_args(table_of(payload.get("tool_input"))),
        reply_chars=size_of(payload.get("tool_output")),
        reply=_own(payload.get("tool_output")) if called.startswith(_MCP) else None,
    )


def _own(output: Any) -> Any:
    """An MCP result as it may be replaced: its content alone."""
    try:
        result = orjson.loads(output) if isinstance(output, str) else output
    except orjson.JSONDecodeError:
        return None
    if not isinstance(result, Mapping) or result.get("isError"):
        return None
    content = result.get("content")
    return {"content": content} if isinstance(content, list) else None


def _workspace(roots: Any) -> str | None:
    return folder_of(roots[0]) if isinstance(roots, list) and roots else None


HOST = CursorHost()
