"""GitHub Copilot CLI. Events in camelCase do not carry their name: the command line says it.

Context is joined and capped at 10 KB. What a hook says to a prompt is ignored, so prompts are not
answered. Source: the github/docs repository. `toolArgs` may be JSON in a string.
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
    surfacing_tool,
    table_of,
    text_of,
)

_READERS = {
    "view": "Read",
    "read": "Read",
    "bash": "Bash",
    "shell": "Bash",
    "powershell": "Bash",
    "grep": "Grep",
    "rg": "Grep",
    "glob": "Glob",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
}
_SERVER_MARK = "-"
"""Tools of MCP servers are `server-tool`."""


class CopilotHost:
    """Payloads in camelCase, answers flat."""

    name = "copilot"
    max_bytes = 10_000
    reply_tokens: int | None = None
    events: Mapping[str, EventKind] = {
        "sessionStart": EventKind.SESSION,
        "postToolUse": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "agentStop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        kind = self.events.get(name)
        if kind is None:
            return None
        session, cwd = session_of(payload.get("sessionId")), folder_of(payload.get("cwd"))
        if kind is EventKind.TOOL:
            return _call(name, payload, session, cwd)
        text = text_of(payload.get("source"), 64) if kind is EventKind.SESSION else ""
        return Event(kind=kind, name=name, session=session, cwd=cwd, text=text)

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        return {"additionalContext": text}

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        return {"modifiedResult": {"resultType": "success", "textResultForLlm": reply}}


def _call(name: str, payload: Mapping[str, Any], session: str, cwd: str | None) -> Event | None:
    called = text_of(payload.get("toolName"), 200)
    tool = surfacing_tool(called, _READERS, ())
    if not tool and _SERVER_MARK in called and not called.startswith("upwell-"):
        tool = called.replace(_SERVER_MARK, "__", 1)
    if not tool:
        return None
    result = table_of(payload.get("toolResult"))
    return Event(
        kind=EventKind.TOOL,
        name=name,
        session=session,
        cwd=cwd,
        tool=tool,
        args=plain_args(_decoded(payload.get("toolArgs"))),
        reply_chars=size_of(result.get("textResultForLlm")),
        reply=result.get("textResultForLlm") if result.get("resultType") == "success" else None,
    )


def _decoded(args: Any) -> Mapping[str, Any]:
    if not isinstance(args, str):
        return table_of(args)
    try:
        return table_of(orjson.loads(args))
    except orjson.JSONDecodeError:
        return {}


HOST = CopilotHost()
