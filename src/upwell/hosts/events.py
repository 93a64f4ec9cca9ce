"""The events that agent hosts send to our hooks, in one form for all hosts (`HostEvent`), and how
they are parsed and answered (`HostEvents`). Before them, the user's own words in a prompt
(`own_words()`), where the host does not say whose words it holds.

Hosts submit notices, results of background tasks, other sessions' messages and files in the user's
name. Where an event or a transcript records no author, an element that the host wraps whole
(`<tag>…</tag>`) is removed if it begins a line; whatever stands before or behind it is the user's.
Nothing else counts as a mark, because users quote such texts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.ground.host_sessions import within
from upwell.ground.names import OWN_SERVER
from upwell.ground.types.cue import ToolAnswer

QUESTION = "[upwell] Before you finish: "
"""The beginning of the question that upwell asks at the end of a turn. Some hosts submit it as a
prompt from the user."""
INSERTED: Mapping[str, Sequence[str]] = {
    "claude": (
        "agent-message",
        "bash-exit-code",
        "bash-input",
        "bash-stderr",
        "bash-stdout",
        "channel",
        "coordinator-relay",
        "cross-session-message",
        "ide_diagnostics",
        "ide_opened_file",
        "ide_selection",
        "local-command-caveat",
        "local-command-stderr",
        "local-command-stdout",
        "remote-review",
        "slack-ping",
        "slack-tag-message",
        "system-reminder",
        "task-notification",
        "teammate-message",
        "tick",
        "user-prompt-submit-hook",
    ),
    "codex": (
        "INSTRUCTIONS",
        "context_window_reminder",
        "environment_context",
        "hook_prompt",
        "permissions instructions",
        "recommended_plugins",
        "skill",
        "subagent_notification",
        "turn_aborted",
        "user_instructions",
        "user_shell_command",
    ),
    "gemini": ("hook_context", "session_context"),
    "copilot": ("current_datetime", "system_reminder"),
    "cursor": ("system_reminder",),
    "opencode": ("system-reminder",),
}
"""The elements that each host puts into prompts."""
_INLINE = frozenset({"system-reminder", "system_reminder", "ide_opened_file", "ide_selection"})
"""Elements that hosts also put directly behind the user's words."""
HISTORIES = "specstory"
"""Stands for all hosts, because SpecStory writes histories of several."""
LEADS: Mapping[str, Sequence[str]] = {
    "claude": (
        "A peer session sent a message",
        "Another Claude session sent a message",
        "[SYSTEM NOTIFICATION - NOT USER INPUT]",
    ),
    "codex": ("# AGENTS.md instructions for ",),
}
"""How a host begins the text with which it introduces such an element."""
TRAILS: Mapping[str, Sequence[str]] = {
    "claude": (
        "Full transcript available at:",
        "Read the output file to retrieve the result:",
    ),
}
"""How a host begins a line of its own directly behind such an element."""
CONTEXTS: Mapping[str, tuple[str, str]] = {
    "codex": ("# Context from my IDE setup:", "## My request for Codex:"),
}
"""How an extension of an editor begins the context before a request, and the request."""
_INTERRUPTIONS = frozenset(
    {"[Request interrupted by user]", "[Request interrupted by user for tool use]"}
)
_RECORDS_COMMANDS = ("claude", HISTORIES)
_MAX_LEAD_CHARS = 1_000
_LINE = re.compile(r"\s*+([^\n]*+)")
_MAX_OPEN = 20
"""After this many elements without an end, the rest of a text is left unchanged."""
_COMMAND = re.compile(r"\s*+<(command-(?:name|message|args|contents)|skill-format)>")


def own_words(text: str, host: str) -> str:
    """The user's own words in a prompt, without what the host put into it; "" if nothing is left.
    A slash command is returned as it was typed.
    """
    words = request_in(text, host)
    if words.startswith(QUESTION) or words in _INTERRUPTIONS:
        return ""
    return without_elements(typed_command(words) if host in _RECORDS_COMMANDS else words, host)


def request_in(text: str, host: str) -> str:
    """The user's request in a prompt, without the context that an editor put before it."""
    context, request = CONTEXTS.get(host, ("", ""))
    if context and text.lstrip().startswith(context):
        text = text.partition(request)[2] or text
    return text.strip()


def without_elements(text: str, host: str) -> str:
    """The text without the elements that this host puts into prompts."""
    patterns = _elements(host) if "<" in text else None
    if patterns is None:
        return text.strip()
    at_line, at_once = patterns
    parts, start, unclosed = [], 0, 0
    opening = at_line.search(text)
    while opening and unclosed < _MAX_OPEN:
        closing = f"</{opening[1] or opening[2]}>"
        end = text.find(closing, opening.end())
        unclosed += end < 0
        if end < 0:
            opening = at_line.search(text, opening.end())
            continue
        parts.append(text[start : opening.start()])
        start = _after_trail(text, end + len(closing), host)
        opening = at_once.match(text, start) or at_line.search(text, start)
    return "".join((*parts, text[start:])).strip()


def _after_trail(text: str, start: int, host: str) -> int:
    """The position behind a line of the host's own that follows an element; `start` if none."""
    line = _LINE.match(text, start)
    is_hosts = line is not None and line[1].startswith(tuple(TRAILS.get(host, ())))
    return line.end() if line is not None and is_hosts else start


def typed_command(text: str) -> str:
    """A slash command as the user typed it, if a text is nothing but Claude Code's record of one;
    otherwise the text itself."""
    elements: dict[str, str] = {}
    offset = 0
    while opening := _COMMAND.match(text, offset):
        words, closing, _ = text[opening.end() :].partition(f"</{opening[1]}>")
        if not closing or opening[1] in elements:
            return text
        elements[opening[1]] = words.strip()
        offset = opening.end() + len(words) + len(closing)
    if "command-name" not in elements or text[offset:].strip():
        return text
    return f"{elements['command-name']} {elements.get('command-args', '')}".strip()


@lru_cache(maxsize=32)
def _elements(host: str) -> tuple[re.Pattern[str], re.Pattern[str]] | None:
    """The beginning of an element with the text that introduces it: at the beginning of a line, or,
    for some, anywhere; and directly behind another element. None for a host that puts none into
    prompts."""
    hosts = tuple(INSERTED) if host == HISTORIES else (host,)
    tags = sorted({tag for each in hosts for tag in INSERTED.get(each, ())})
    if not tags:
        return None
    leads = [re.escape(words) for each in hosts for words in LEADS.get(each, ())]
    lead = rf"(?:(?:{'|'.join(leads)})[^<]{{0,{_MAX_LEAD_CHARS}}}+)?+" if leads else ""
    opening = rf"{lead}<({'|'.join(map(re.escape, tags))})(?:\s[^<>]*+)?+>"
    inline = rf"<({'|'.join(tag for tag in tags if tag in _INLINE) or '(?!)'})(?:\s[^<>]*+)?+>"
    return (
        re.compile(rf"^[ \t]*+{opening}|{inline}", re.MULTILINE),
        re.compile(rf"\s*+{opening}|{inline}"),
    )


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


def _strings(value: Any) -> Iterator[str]:
    """The strings in a tool's result, without keys, in their order."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            pending.extend(reversed(item))


def size_of(value: Any) -> int | None:
    """The number of characters in the strings of a tool's result, without keys; None if the event
    has no result."""
    return None if value is None else sum(map(len, _strings(value)))


def answer_of(value: Any, *, failed: bool | None = None, tool: str = "") -> ToolAnswer | None:
    """The beginning of a tool's result as text; None if the event has no result. If the host does
    not say whether a command has `failed`, an exit status that its result reports decides."""
    if value is None:
        return None
    texts: list[str] = []
    room = MAX_ANSWER_CHARS
    for item in _strings(value):
        texts.append(item[:room])
        room -= len(texts[-1]) + 1
        if room <= 0:
            break
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


def text_blocks(value: Any) -> list[Mapping[str, Any]] | None:
    """The MCP content blocks if all of them are text, otherwise None."""
    if not isinstance(value, list) or not value:
        return None
    only_texts = all(
        isinstance(block, Mapping) and isinstance(block.get("text"), str) for block in value
    )
    return value if only_texts else None


_ENDS = (EventKind.STOP, EventKind.END)
_USERS = ("user", "sdk")
"""The authors of prompts, as Claude Code names them, that are the user."""
MAX_PROMPT_CHARS = 1_000_000
"""How much of a prompt is read, to find the ends of what the host put into it."""


class HostEvents:
    """How a host reports events, and what output it accepts.

    This is the format that Claude Code introduced, and that Codex, Gemini CLI and VS Code share.
    The payload has keys for the event's name, the session, the folder and the tool; most output
    goes into `hookSpecificOutput`. A host with another format overrides what differs.

    - `kinds`: the events that we handle, keyed by the host's names.
    - `readers`: the host's own tools that read, search or run commands, mapped to upwell's names.
    - `server_marks`: the prefixes of MCP tools.
    - `max_bytes`: the size limit for the context that a hook adds. The host may drop or truncate a
      larger text, or move it into a file.
    - `reply_tokens`: the token limit for a replacement result; None if there is none.
    - `inserts`: the host's name, if it puts elements into prompts (`INSERTED`). A prompt that is
      nothing else is not an event.
    - `restores_context`: a resumed session still has the context that hooks added at its start.
    - `announces_compactions`: an event with the trigger `auto` only announces a possible one.
    - `recorded`: the kinds of events for which upwell may read the transcript.
    """

    kinds: Mapping[str, EventKind] = {}
    readers: Mapping[str, str] = {}
    server_marks: Sequence[str] = ("mcp__",)
    max_bytes = 10_000
    reply_tokens: int | None = None
    inserts = ""
    restores_context = False
    announces_compactions = False
    recorded: Sequence[EventKind] = (*_ENDS, EventKind.SESSION)
    agent_key, tool_key, args_key = "agent_id", "tool_name", "tool_input"
    continued_key = "stop_hook_active"

    def read(self, name: str, payload: Mapping[str, Any]) -> HostEvent | None:
        """Parse a payload. Returns None for an event that we do not handle. Never raises on a
        malformed payload."""
        name = name or text_of(payload.get("hook_event_name"), 64)
        kind = self.kinds.get(name)
        is_announced = self.announces_compactions and payload.get("trigger") == "auto"
        if kind is None or (kind is EventKind.COMPACT and is_announced):
            return None
        event = HostEvent(
            kind=kind,
            name=name,
            session=self.session(payload),
            cwd=self.cwd(payload),
            agent=self.agent(payload),
        )
        if kind in (EventKind.TOOL, EventKind.BEFORE):
            return self.call(event, payload)
        text = self.text(kind, payload)
        if kind is EventKind.PROMPT and self.inserts and not text and payload.get("prompt"):
            return None
        return replace(
            event,
            text=text,
            transcript=self.transcript(payload) if kind in self.recorded else "",
            is_continued=bool(payload.get(self.continued_key)),
            reports_compactions=not self.announces_compactions,
        )

    def start(self, session: str, folder: str) -> tuple[str, Mapping[str, Any]]:
        """The event that the host sends when a session starts: its name, and a recorded payload.
        `upwell setup` sends it to an installed hook as a test."""
        name = next(name for name, kind in self.kinds.items() if kind is EventKind.SESSION)
        payload = {"session_id": session, "transcript_path": "", "cwd": folder}
        return name, {**payload, "hook_event_name": name, "source": "startup"}

    def context_output(self, event: HostEvent, text: str) -> Mapping[str, Any]:
        """The hook output that adds `text` to the agent's context."""
        return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}

    def replacement_output(self, event: HostEvent, reply: Any) -> Mapping[str, Any]:
        """The hook output that replaces `event.reply` with `reply`, which has the same shape."""
        return {}

    def refusal_output(self, event: HostEvent, reason: str) -> Mapping[str, Any]:
        """The hook output that blocks a tool call; empty if the host does not allow this."""
        decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
        return {"hookSpecificOutput": {"hookEventName": event.name, **decision}}

    def question_output(self, event: HostEvent, question: str) -> Mapping[str, Any]:
        """The hook output that makes the agent continue with `question` at the end of a turn; empty
        if the host does not allow this."""
        return {"decision": "block", "reason": question}

    def session(self, payload: Mapping[str, Any]) -> str:
        """The session id. A subagent gets its own session, because it does not share its parent's
        context."""
        return within(session_of(payload.get("session_id")), self.agent(payload))

    def agent(self, payload: Mapping[str, Any]) -> str:
        return session_of(payload.get(self.agent_key))

    def cwd(self, payload: Mapping[str, Any]) -> str | None:
        return folder_of(payload.get("cwd"))

    def text(self, kind: EventKind, payload: Mapping[str, Any]) -> str:
        """`HostEvent.text`. A session that was resumed without its context counts as new. Claude
        Code may name a prompt's author (`source`)."""
        source = text_of(payload.get("source"), 64)
        if kind is EventKind.PROMPT:
            prompt = text_of(payload.get("prompt"), MAX_PROMPT_CHARS)
            if self.inserts and payload.get("source"):
                prompt = prompt if source in _USERS else ""
            elif self.inserts:
                prompt = own_words(prompt, self.inserts)
            return prompt[:MAX_TEXT_CHARS]
        if kind is EventKind.SESSION:
            if self.agent(payload):
                return SUBAGENT
            return source if self.restores_context or source != RESUMED else STARTED
        if kind in _ENDS:
            return text_of(payload.get("last_assistant_message", payload.get("prompt_response")))
        return ""

    def transcript(self, payload: Mapping[str, Any]) -> str:
        own = payload.get("agent_transcript_path") if self.agent(payload) else None
        return text_of(own or payload.get("transcript_path"), MAX_PATH_CHARS)

    def call(self, event: HostEvent, payload: Mapping[str, Any]) -> HostEvent | None:
        """The event of a tool call; None if the tool gets no memories."""
        called = text_of(payload.get(self.tool_key), 200)
        tool, joined = self.tool(called, payload)
        if not tool:
            return None
        answer = self.answer(tool, payload)
        has_failed = answer is not None and answer.failed
        return replace(
            event,
            tool=tool,
            joined=joined,
            args=plain_args(payload.get(self.args_key)),
            reply_chars=size_of(self.result(payload)),
            answer=answer,
            reply=None if has_failed else self.reply(called, payload),
        )

    def tool(self, called: str, payload: Mapping[str, Any]) -> tuple[str, str]:
        """`HostEvent.tool`, "" for a tool that gets no memories, and `HostEvent.joined`. Gemini CLI
        names the server and the tool beside the joined name."""
        tool = self.surfacing_tool(called)
        if not tool or called in self.readers or "__" in tool:
            return tool, ""
        context = table_of(payload.get("mcp_context"))
        server, name = (text_of(context.get(key), 200) for key in ("server_name", "tool_name"))
        return (f"{server}__{name}", "") if server and name else (tool.replace("_", "__", 1), tool)

    def surfacing_tool(self, name: str) -> str:
        """upwell's name for a host's tool, or "" for a tool that gets no memories. Tools behind our
        gateway get none here, because the gateway itself adds memories."""
        if name in self.readers:
            return self.readers[name]
        mark = next((mark for mark in self.server_marks if name.startswith(mark)), None)
        tool = "" if mark is None else name.removeprefix(mark)
        return "" if tool == OWN_SERVER or tool.startswith(_OWN_PREFIXES) else tool

    def result(self, payload: Mapping[str, Any]) -> Any:
        """The result of a call, or the error in its place; None if the event has none."""
        return payload.get("tool_response", payload.get("error"))

    def answer(self, tool: str, payload: Mapping[str, Any]) -> ToolAnswer | None:
        """The result of a call. A command that its host does not report as failed has worked,
        unless its result reports an exit status."""
        failed = "error" in payload or (None if tool == COMMANDS else False)
        answer = answer_of(self.result(payload), failed=failed, tool=tool)
        return replace(answer, failed=False) if answer and answer.failed is None else answer

    def reply(self, called: str, payload: Mapping[str, Any]) -> Any:
        """The part of a result that a hook can replace; None if it can replace nothing."""
        return None
