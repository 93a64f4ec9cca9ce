"""Events in the format that Claude Code introduced. The payload has keys for the event's name, the
session, the folder and the tool; most output goes into `hookSpecificOutput`. Codex, Gemini CLI and
VS Code use the same format, with their own names for events and tools."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.host_sessions import within
from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.events import (
    COMMANDS,
    MAX_PATH_CHARS,
    MAX_TEXT_CHARS,
    RESUMED,
    STARTED,
    SUBAGENT,
    EventKind,
    HostEvent,
    answer_of,
    folder_of,
    plain_args,
    session_of,
    size_of,
    surfacing_tool,
    table_of,
    text_of,
)
from upwell.hosts.prompts import own_words

_ENDS = (EventKind.STOP, EventKind.END)
_RECORDED = (*_ENDS, EventKind.SESSION)
"""The kinds of events for which upwell may read the transcript."""
_USERS = ("user", "sdk")
"""The authors of prompts, as Claude Code names them, that are the user."""
MAX_PROMPT_CHARS = 1_000_000
"""How much of a prompt is read, to find the ends of what the host put into it."""
ReadReply = Callable[[str, Any], Any]
"""Takes a tool's name and result. Returns the part of the result that a hook can replace, or None
if it can replace nothing.
"""
WriteReply = Callable[[HostEvent, Any], Mapping[str, Any]]
WriteRefusal = Callable[[HostEvent, str], Mapping[str, Any]]
WriteQuestion = Callable[[HostEvent, str], Mapping[str, Any]]


def always(payload: Mapping[str, Any]) -> bool:
    """Return True, for a host that sends a compaction event only when it really compacts."""
    return True


def not_replaceable(tool: str, reply: Any) -> Any:
    """Return None, for a host whose hooks cannot replace a tool's result."""
    return None


def not_reported(payload: Mapping[str, Any]) -> bool | None:
    """Return None, for a host that says in the event itself whether a command failed."""
    return None


def no_output(event: HostEvent, reply: Any) -> Mapping[str, Any]:
    return {}


def denied(event: HostEvent, reason: str) -> Mapping[str, Any]:
    """The output that denies a tool call and gives the reason."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": event.name, **decision}}


def blocked(event: HostEvent, question: str) -> Mapping[str, Any]:
    """The output that makes the agent continue with `question` at the end of a turn."""
    return {"decision": "block", "reason": question}


class NestedEvents(Struct, frozen=True, kw_only=True):
    """The events of one host that uses this format.

    - `inserts`: the host's name, if it puts elements into prompts (`prompts.INSERTED`). A prompt
      that is nothing else is not an event.
    - `restores_context`: a resumed session still has the context that hooks added at its start.
    - `really_compacts` returns False if an event only announces a possible compaction.
    - `has_failed` returns whether a command failed, if the host records that outside of the event.
    - `read_reply` returns the replaceable part of a tool's result, and `write_reply` builds the
      output that replaces it.
    """

    max_bytes: int
    kinds: Mapping[str, EventKind]
    readers: Mapping[str, str]
    server_marks: Sequence[str] = ("mcp__",)
    inserts: str = ""
    restores_context: bool = False
    read_reply: ReadReply = not_replaceable
    write_reply: WriteReply = no_output
    write_refusal: WriteRefusal = denied
    write_question: WriteQuestion = blocked
    reply_tokens: int | None = None
    has_failed: Callable[[Mapping[str, Any]], bool | None] = not_reported
    really_compacts: Callable[[Mapping[str, Any]], bool] = always

    def read(self, name: str, payload: Mapping[str, Any]) -> HostEvent | None:
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.kinds.get(name)
        if kind is None or (kind is EventKind.COMPACT and not self.really_compacts(payload)):
            return None
        if kind in (EventKind.TOOL, EventKind.BEFORE):
            return self._tool_event(kind, name, payload)
        text = self._text(kind, payload)
        if kind is EventKind.PROMPT and not text and payload.get("prompt"):
            return None
        return HostEvent(
            kind=kind,
            name=name,
            session=_session_in(payload),
            cwd=folder_of(payload.get("cwd")),
            text=text,
            transcript=_transcript_in(payload) if kind in _RECORDED else "",
            agent=_agent_in(payload),
            is_continued=bool(payload.get("stop_hook_active")),
            reports_compactions=self.really_compacts is always,
        )

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        return self.write_reply(event, reply)

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        return self.write_refusal(event, reason)

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        return self.write_question(event, question)

    def _text(self, kind: EventKind, payload: Mapping[str, Any]) -> str:
        if kind is EventKind.PROMPT:
            return self._user_words(payload)
        if kind is EventKind.SESSION:
            return SUBAGENT if _agent_in(payload) else self._reason(payload)
        if kind in _ENDS:
            return text_of(payload.get("last_assistant_message", payload.get("prompt_response")))
        return ""

    def _user_words(self, payload: Mapping[str, Any]) -> str:
        """The user's words in a prompt. Claude Code may name its author (`source`)."""
        author, prompt = payload.get("source"), text_of(payload.get("prompt"), MAX_PROMPT_CHARS)
        if self.inserts and author:
            prompt = prompt if author in _USERS else ""
        elif self.inserts:
            prompt = own_words(prompt, self.inserts)
        return prompt[:MAX_TEXT_CHARS]

    def _reason(self, payload: Mapping[str, Any]) -> str:
        """Why the session started. A session that was resumed without its context counts as new."""
        reason = text_of(payload.get("source"), 64)
        return reason if self.restores_context or reason != RESUMED else STARTED

    def _tool_event(
        self, kind: EventKind, name: str, payload: Mapping[str, Any]
    ) -> HostEvent | None:
        called = text_of(payload.get("tool_name"), 200)
        tool = surfacing_tool(called, self.readers, self.server_marks)
        if not tool:
            return None
        joined = ""
        if called not in self.readers and "__" not in tool:
            joined, tool = tool, tool.replace("_", "__", 1)
            if exact := _exact_tool(payload):
                joined, tool = "", exact
        return HostEvent(
            kind=kind,
            name=name,
            session=_session_in(payload),
            cwd=folder_of(payload.get("cwd")),
            tool=tool,
            joined=joined,
            args=plain_args(table_of(payload.get("tool_input"))),
            reply_chars=size_of(payload.get("tool_response", payload.get("error"))),
            answer=self._answer(tool, payload),
            reply=self.read_reply(called, payload.get("tool_response")),
            agent=_agent_in(payload),
        )

    def _answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        """The result of a call. A command that its host does not report as failed has worked,
        unless its result reports an exit status, or the host tells outcomes elsewhere."""
        result = payload.get("tool_response", payload.get("error"))
        if "error" in payload or tool != COMMANDS:
            return answer_of(result, failed="error" in payload, tool=tool)
        answer = answer_of(result, failed=self.has_failed(payload), tool=tool)
        if answer and answer.failed is None and self.has_failed is not_reported:
            return replace(answer, failed=False)
        return answer


def _exact_tool(payload: Mapping[str, Any]) -> str:
    """`server__tool`, if the host names both beside the joined name, as Gemini CLI does."""
    context = table_of(payload.get("mcp_context"))
    server, tool = text_of(context.get("server_name"), 200), text_of(context.get("tool_name"), 200)
    return f"{server}__{tool}" if server and tool else ""


def _agent_in(payload: Mapping[str, Any]) -> str:
    """The subagent's id. A subagent gets its own session, because it does not share its parent's
    context."""
    return session_of(payload.get("agent_id"))


def _session_in(payload: Mapping[str, Any]) -> str:
    return within(session_of(payload.get("session_id")), _agent_in(payload))


def _transcript_in(payload: Mapping[str, Any]) -> str:
    own = payload.get("agent_transcript_path") if _agent_in(payload) else None
    return text_of(own or payload.get("transcript_path"), MAX_PATH_CHARS)
