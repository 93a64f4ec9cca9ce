"""The events that agent hosts send to our hooks, in one form for all hosts, and the interface for
parsing and answering them.

Events in the format that Claude Code introduced. The payload has keys for the event's name, the
session, the folder and the tool; most output goes into `hookSpecificOutput`. Codex, Gemini CLI and
VS Code use the same format, with their own names for events and tools.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.host_sessions import within
from upwell.ground.names import OWN_SERVER
from upwell.ground.types.cue import ToolAnswer
from upwell.hosts.prompts import own_words

STARTED, RESUMED, SUBAGENT = "startup", "resume", "subagent"
"""Reasons for the start of a session. The hosts use the first two words; the third is ours."""
MAX_SESSION_CHARS = 200
MAX_TEXT_CHARS = 20_000
MAX_ANSWER_CHARS = 40_000
MAX_PATH_CHARS = 4_096
COMMANDS = "Bash"
"""upwell's name for the tool that runs commands."""
_EXIT_CHARS = 300
_STATUS_FIELDS = ("exit_code", "exitCode")
_EXIT = re.compile(r"exit(?:ed with)?[ _]?code[\"']?[: ]\s?(-?\d{1,4})\b", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish"})
_PATH_NAMES = frozenset({"absolute_path", "target_file", "relative_workspace_path", "file"})
_OWN_PREFIXES = tuple(
    f"{name}{mark}" for name in (OWN_SERVER, f"plugin_{OWN_SERVER}_{OWN_SERVER}") for mark in "_-"
)
"""The prefixes of our gateway's tools. Claude Code puts a plugin's name before the server's."""


class EventKind(StrEnum):
    """The kinds of events, with the same names for every host."""

    SESSION = "session"
    PROMPT = "prompt"
    BEFORE = "before"
    """A tool is about to run."""
    TOOL = "tool"
    COMPACT = "compact"
    STOP = "stop"
    END = "end"


class HostEvent(Struct, frozen=True, kw_only=True):
    """One event from a host.

    - `name`: the host's own name for the event. Some output must repeat it.
    - `session`: the session id. A subagent has its own session, nested below its parent's.
    - `agent`: the subagent's id, or "" for the main agent.
    - `text`: the prompt; or why the session started (startup, resume, clear, compact, subagent); or
      the agent's last message at the end of a turn.
    - `tool`: upwell's name for the tool (`Read`, `server__tool`). The keys of `args` are in
      snake_case.
    - `joined`: the host's name for an MCP tool (`server_tool`), if `tool` had to guess where the
      server's name ends. Equal to `tool` if the host leaves out the server.
    - `reply_chars`: the size of the tool's result, or None if the event has no result.
    - `answer`: the beginning of the result as text, and whether the call failed.
    - `reply`: the result in the host's own shape, or None if the host does not let us replace it.
    - `is_continued`: at the end of a turn, True if a hook has already made the agent continue.
    - `reports_compactions`: True if the host sends an event for every compaction. Otherwise some
      compactions can be seen only in the transcript.
    """

    kind: EventKind
    name: str
    session: str = ""
    cwd: str | None = None
    text: str = ""
    tool: str = ""
    joined: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    reply_chars: int | None = None
    answer: ToolAnswer | None = None
    transcript: str = ""
    reply: Any = None
    agent: str = ""
    is_continued: bool = False
    reports_compactions: bool = True


class EventFormat(Protocol):
    """How a host reports events, and what output it accepts."""

    @property
    def kinds(self) -> Mapping[str, EventKind]:
        """The events that we handle, keyed by the host's names."""
        ...

    @property
    def max_bytes(self) -> int:
        """The size limit for the context that a hook adds. The host may drop or truncate a larger
        text, or move it into a file."""
        ...

    @property
    def readers(self) -> Mapping[str, str]:
        """The host's own tools that read, search or run commands, mapped to upwell's names."""
        ...

    @property
    def reply_tokens(self) -> int | None:
        """The token limit for a replacement result; None if there is none."""
        ...

    def read(self, name: str, payload: Mapping[str, Any]) -> HostEvent | None:
        """Parse a payload. Returns None for an event that we do not handle. Never raises on a
        malformed payload."""
        ...

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        """The hook output that adds `text` to the agent's context."""
        ...

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        """The hook output that replaces `event.reply` with `reply`, which has the same shape."""
        ...

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        """The hook output that blocks a tool call; empty if the host does not allow this."""
        ...

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        """The hook output that makes the agent continue with `question`; empty if the host does not
        allow this."""
        ...


def text_of(value: Any, limit: int = MAX_TEXT_CHARS) -> str:
    """The first `limit` characters of a string, or "" for any other value."""
    return value[:limit] if isinstance(value, str) else ""


def table_of(value: Any) -> Mapping[str, Any]:
    """The mapping itself, or an empty mapping for any other value."""
    return value if isinstance(value, Mapping) else {}


def session_of(value: Any) -> str:
    """A session id, truncated to `MAX_SESSION_CHARS`."""
    return text_of(value, MAX_SESSION_CHARS)


def folder_of(value: Any) -> str | None:
    """The path if it is absolute, otherwise None."""
    path = text_of(value, MAX_PATH_CHARS)
    return path if path.startswith("/") and "\0" not in path else None


def size_of(value: Any) -> int | None:
    """The number of characters in the strings of a tool's result, without keys; None if the event
    has no result."""
    if value is None:
        return None
    size, pending = 0, [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return size


def answer_of(value: Any, *, failed: bool | None = None, tool: str = "") -> ToolAnswer | None:
    """The beginning of a tool's result as text; None if the event has no result. If the host does
    not say whether a command has `failed`, an exit status that its result reports decides."""
    if value is None:
        return None
    texts: list[str] = []
    room, pending = MAX_ANSWER_CHARS, [value]
    while pending and room > 0:
        item = pending.pop()
        if isinstance(item, str):
            texts.append(item[:room])
            room -= len(texts[-1]) + 1
        elif isinstance(item, Mapping):
            pending.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            pending.extend(reversed(item))
    text = "\n".join(texts)
    if tool == COMMANDS and failed is None and (status := _exit_status(value, text)) is not None:
        failed = status != 0
    return ToolAnswer(text=text, failed=failed)


def _exit_status(value: Any, text: str) -> int | None:
    for name in _STATUS_FIELDS:
        status = table_of(value).get(name)
        if isinstance(status, int) and not isinstance(status, bool):
            return status
    match = _EXIT.search(text[:_EXIT_CHARS]) or _EXIT.search(text[-_EXIT_CHARS:])
    return int(match[1]) if match else None


def plain_args(value: Any) -> dict[str, Any]:
    """The arguments under upwell's names: snake_case keys, `file_path` for a file, and a command as
    one string without the shell that runs it."""
    args: dict[str, Any] = {}
    for key, item in table_of(value).items():
        name = _CAMEL.sub("_", key).lower()
        args.setdefault("file_path" if name in _PATH_NAMES else name, item)
    command = args.get("command")
    if isinstance(command, list):
        args["command"] = _command_of([part for part in command if isinstance(part, str)])
    return args


def _command_of(parts: Sequence[str]) -> str:
    if len(parts) > 2 and parts[0].rpartition("/")[2] in _SHELLS and parts[1].startswith("-"):
        return parts[-1]
    return " ".join(parts)


def surfacing_tool(name: str, readers: Mapping[str, str], server_marks: Sequence[str]) -> str:
    """upwell's name for a host's tool, or "" for a tool that gets no memories.

    `readers` maps the host's own tools to these names. `server_marks` are the prefixes of MCP tools
    (`mcp__`). Tools behind our gateway are left out, because the gateway itself adds memories.
    """
    if name in readers:
        return readers[name]
    for mark in server_marks:
        if name.startswith(mark):
            rest = name.removeprefix(mark)
            is_own = rest == OWN_SERVER or rest.startswith(_OWN_PREFIXES)
            return "" if is_own else rest
    return ""


def text_blocks(value: Any) -> list[Mapping[str, Any]] | None:
    """The MCP content blocks if all of them are text, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    only_texts = all(
        isinstance(block, Mapping) and isinstance(block.get("text"), str) for block in value
    )
    return value if only_texts else None


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
