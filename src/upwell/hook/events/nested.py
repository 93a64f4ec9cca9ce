"""Events in the shape that Claude Code began: the event's name, session, folder and tool stand at
the top. Codex, Gemini CLI and VS Code took it over, each with names of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upwell.ground.sessions import within
from upwell.hook.events.base import (
    RESUMED,
    STARTED,
    SUBAGENT,
    Event,
    EventKind,
    additional_context,
    folder_of,
    plain_args,
    session_of,
    size_of,
    surfacing_tool,
    table_of,
    text_of,
)

_OVER = (EventKind.STOP, EventKind.END)
Own = Callable[[str, Any], Any]
"""A tool's answer as it may be replaced, by the tool's name; None where it may not."""
Put = Callable[[Event, Any], Mapping[str, Any]]


def as_given(prompt: str) -> str:
    """The prompt is the user's own words."""
    return prompt


def always(payload: Mapping[str, Any]) -> bool:
    """An event that the agent is about to forget means that it will."""
    return True


def never(tool: str, reply: Any) -> Any:
    """The host takes nothing in place of what a tool answered."""
    return None


def nowhere(event: Event, reply: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedHost:
    """A host of that shape. `readers` map its tools that look at something to surfacing's names.
    `made_up` is how a prompt begins that the host itself puts in, without the user; `asked` takes
    out of another what the host put into it. `restores`: a session that it resumes has what hooks
    said as it began. `forgets` says whether the event before a compaction is one. `own` and `put`
    are how a tool's answer is taken and given, where the host lets it be replaced."""

    name: str
    max_bytes: int
    events: Mapping[str, EventKind]
    readers: Mapping[str, str]
    servers: Sequence[str] = ("mcp__",)
    made_up: str = ""
    restores: bool = False
    own: Own = never
    put: Put = nowhere
    reply_tokens: int | None = None
    asked: Callable[[str], str] = as_given
    forgets: Callable[[Mapping[str, Any]], bool] = always

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.events.get(name)
        if kind is None or (kind is EventKind.COMPACT and not self.forgets(payload)):
            return None
        if kind is EventKind.TOOL:
            return self._call(name, payload)
        text = ""
        if kind is EventKind.PROMPT:
            text = self.asked(text_of(payload.get("prompt")))
            if self.made_up and text.startswith(self.made_up):
                return None
        elif kind is EventKind.SESSION:
            text = SUBAGENT if _agent_in(payload) else self._why(payload)
        elif kind in _OVER:
            said = payload.get("last_assistant_message", payload.get("prompt_response"))
            text = text_of(said)
        return Event(
            kind=kind,
            name=name,
            session=_session_in(payload),
            cwd=folder_of(payload.get("cwd")),
            text=text,
            transcript=_transcript_in(payload) if kind in _OVER else "",
            agent=_agent_in(payload),
            tells_compactions=self.forgets is always,
        )

    def _why(self, payload: Mapping[str, Any]) -> str:
        why = text_of(payload.get("source"), 64)
        return why if self.restores or why != RESUMED else STARTED

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        return additional_context(event, text)

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        return self.put(event, reply)

    def _call(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        called = text_of(payload.get("tool_name"), 200)
        reply = payload.get("tool_response", payload.get("error"))
        tool = surfacing_tool(called, self.readers, self.servers)
        if not tool:
            return None
        return Event(
            kind=EventKind.TOOL,
            name=name,
            session=_session_in(payload),
            cwd=folder_of(payload.get("cwd")),
            tool=tool,
            args=plain_args(table_of(payload.get("tool_input"))),
            reply_chars=size_of(reply),
            reply=self.own(called, payload.get("tool_response")),
            agent=_agent_in(payload),
        )


def _agent_in(payload: Mapping[str, Any]) -> str:
    """The subagent that this happened in: its context is not that of who started it."""
    return session_of(payload.get("agent_id"))


def _session_in(payload: Mapping[str, Any]) -> str:
    return within(session_of(payload.get("session_id")), _agent_in(payload))


def _transcript_in(payload: Mapping[str, Any]) -> str:
    own = payload.get("agent_transcript_path") if _agent_in(payload) else None
    return text_of(own or payload.get("transcript_path"), 4_096)
