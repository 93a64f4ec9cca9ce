"""OpenCode. Its plugin (`hosts/opencode.py`) runs inside the host and sends what it is told, under
the names of OpenCode's own plugin hooks; the answer is the text alone, and what the plugin puts in
place of the tool's output."""

from collections.abc import Mapping
from typing import Any

from upwell.hook.client import IGNORED_TOOLS
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

_READERS = {
    "read": "Read",
    "grep": "Grep",
    "glob": "Glob",
    "list": "LS",
    "bash": "Bash",
    "webfetch": "WebFetch",
    "websearch": "WebSearch",
}
_SILENT = IGNORED_TOOLS | {"task", "question", "skill", "lsp"}


class OpenCodeHost:
    """Tools of MCP servers are `server_tool`."""

    name = "opencode"
    max_bytes = 10_000
    reply_tokens: int | None = None
    events: Mapping[str, EventKind] = {
        "session.created": EventKind.SESSION,
        "chat.message": EventKind.PROMPT,
        "tool.execute.after": EventKind.TOOL,
        "session.compacting": EventKind.COMPACT,
        "session.idle": EventKind.STOP,
    }

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.events.get(name)
        if kind is None:
            return None
        session, cwd = session_of(payload.get("sessionID")), folder_of(payload.get("cwd"))
        text = tool = ""
        args: Mapping[str, Any] = {}
        output = None
        if kind is EventKind.TOOL:
            tool = _tool(text_of(payload.get("tool_name"), 200))
            args = plain_args(table_of(payload.get("args")))
            output = payload.get("output")
            if not tool:
                return None
        elif kind is EventKind.PROMPT:
            text = text_of(payload.get("prompt"))
        elif kind is EventKind.SESSION:
            text = text_of(payload.get("source"), 64)
        return Event(
            kind=kind,
            name=name,
            session=session,
            cwd=cwd,
            text=text,
            tool=tool,
            args=args,
            reply_chars=size_of(output),
            reply=output if isinstance(output, str) else None,
        )

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        return {"text": text}

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        return {"output": reply}


def _tool(name: str) -> str:
    if name in _READERS:
        return _READERS[name]
    if name in _SILENT or name.startswith("upwell_") or "_" not in name:
        return ""
    return name.replace("_", "__", 1)


HOST = OpenCodeHost()
