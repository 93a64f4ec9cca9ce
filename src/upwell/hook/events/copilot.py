"""GitHub Copilot CLI. Events in camelCase do not carry their name: the command line says it.

Context is joined and capped at 10 KB. A session that is resumed has lost what it began
with, so it begins anew. A subagent is a session of its own, whose task is a prompt. Source: the
github/docs repository, and what version 1.0.102 did (`tests/live/`). `toolArgs` was JSON in a
string before.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from upwell.ground.sessions import within
from upwell.hook.events.base import (
    STARTED,
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
        "userPromptSubmitted": EventKind.PROMPT,
        "postToolUse": EventKind.TOOL,
        "postToolUseFailure": EventKind.TOOL,
        "preCompact": EventKind.COMPACT,
        "agentStop": EventKind.STOP,
        "sessionEnd": EventKind.END,
    }

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        kind = self.events.get(name)
        if kind is None:
            return None
        if kind is EventKind.TOOL:
            return _call(name, payload)
        text = ""
        if kind is EventKind.PROMPT:
            text = text_of(payload.get("prompt"))
        elif kind is EventKind.SESSION:
            text = STARTED
        return Event(
            kind=kind,
            name=name,
            session=_session_in(payload),
            cwd=folder_of(payload.get("cwd")),
            text=text,
            agent=session_of(payload.get("agentId")),
        )

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        return {"additionalContext": text}

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        return {"modifiedResult": {"resultType": "success", "textResultForLlm": reply}}


def _session_in(payload: Mapping[str, Any]) -> str:
    """A subagent's stands below the one that started it."""
    session, parent = session_of(payload.get("sessionId")), session_of(payload.get("parentAgentId"))
    return within(parent, session) if parent and payload.get("agentId") else session


def _call(name: str, payload: Mapping[str, Any]) -> Event | None:
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
        session=_session_in(payload),
        cwd=folder_of(payload.get("cwd")),
        tool=tool,
        args=plain_args(_decoded(payload.get("toolArgs"))),
        reply_chars=size_of(result.get("textResultForLlm", payload.get("error"))),
        reply=result.get("textResultForLlm") if result.get("resultType") == "success" else None,
        agent=session_of(payload.get("agentId")),
    )


def _decoded(args: Any) -> Mapping[str, Any]:
    if not isinstance(args, str):
        return table_of(args)
    try:
        return table_of(orjson.loads(args))
    except orjson.JSONDecodeError:
        return {}


HOST = CopilotHost()
