"""What hosts' events have in common: an event as we see it, and the protocol of a host."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

MAX_SESSION_CHARS = 200
STARTED, RESUMED, SUBAGENT = "startup", "resume", "subagent"
"""Why a session begins; the last word is ours."""
MAX_TEXT_CHARS = 20_000
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHELL_WRAPPERS = frozenset({"sh", "bash", "zsh", "dash", "/bin/sh", "/bin/bash", "/bin/zsh"})
_PATH_NAMES = frozenset({"absolute_path", "target_file", "relative_workspace_path", "file"})
OWN_SERVER = "upwell"
_OWN_TOOLS = tuple(
    f"{named}{mark}" for named in (OWN_SERVER, f"plugin_{OWN_SERVER}_{OWN_SERVER}") for mark in "_-"
)
"""Claude Code puts the name of a plugin before that of its server."""


class EventKind(StrEnum):
    """What happened, whatever the host calls it."""

    SESSION = "session"
    PROMPT = "prompt"
    TOOL = "tool"
    COMPACT = "compact"
    STOP = "stop"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a host. `name` is the host's word for it, which its answer may have to repeat.

    `text` is the prompt, why a session begins (startup, resume, clear, compact, subagent), or what
    the agent said at the end of a turn. `tool` has the name under which surfacing knows it (`Read`,
    `server__tool`), `args` snake_case keys. `reply_chars` is the size of the tool's answer where
    the event says it, `transcript` the file that the host keeps of the session. `agent` is the
    subagent that it happened in, "" for none; its `session` is then its own. `reply` is what the
    tool answered, in the host's own shape, where the host would take something else in its place;
    None where it would not.
    `tells_compactions`: each has an event of its own; else only the transcript shows them.
    """

    kind: EventKind
    name: str
    session: str = ""
    cwd: str | None = None
    text: str = ""
    tool: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    reply_chars: int | None = None
    transcript: str = ""
    reply: Any = None
    agent: str = ""
    tells_compactions: bool = True


class Host(Protocol):
    """An agent host: reads its events, and says an answer in its own shape."""

    @property
    def name(self) -> str: ...

    @property
    def max_bytes(self) -> int:
        """Of a text; what is longer the host drops, or puts into a file."""
        ...

    @property
    def events(self) -> Mapping[str, EventKind]:
        """The events that are answered, by the host's names."""
        ...

    def read(self, name: str, payload: Mapping[str, Any]) -> Event | None:
        """The event, None when there is nothing to say to it. Never raises on odd payloads."""
        ...

    @property
    def reply_tokens(self) -> int | None:
        """Of a reply that is put in place of a tool's; None for no limit of the host's own."""
        ...

    def said(self, event: Event, text: str) -> Mapping[str, Any]:
        """`text` as the host takes it."""
        ...

    def replaced(self, event: Event, reply: Any) -> Mapping[str, Any]:
        """`reply`, of the shape of `event.reply`, as the host takes it in that one's place."""
        ...


def text_of(value: Any, limit: int = MAX_TEXT_CHARS) -> str:
    """A string as it is, anything else empty."""
    return value[:limit] if isinstance(value, str) else ""


def table_of(value: Any) -> Mapping[str, Any]:
    """A table as it is, anything else empty."""
    return value if isinstance(value, Mapping) else {}


def session_of(value: Any) -> str:
    return text_of(value, MAX_SESSION_CHARS)


def folder_of(value: Any) -> str | None:
    """An absolute folder, None for anything else."""
    text = text_of(value, 4_096)
    return text if text.startswith("/") and "\0" not in text else None


def size_of(value: Any) -> int | None:
    """How many characters a tool answered, roughly: the texts in its answer."""
    if value is None:
        return None
    size, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, Mapping):
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
    return size


def plain_args(value: Any) -> dict[str, Any]:
    """Arguments under the names that surfacing knows: snake_case, files as `file_path`, a command
    as one text without the shell that runs it."""
    args: dict[str, Any] = {}
    for key, item in table_of(value).items():
        name = _CAMEL.sub("_", key).lower()
        args.setdefault("file_path" if name in _PATH_NAMES else name, item)
    command = args.get("command")
    if isinstance(command, list):
        args["command"] = _command_of([part for part in command if isinstance(part, str)])
    return args


def _command_of(parts: Sequence[str]) -> str:
    if len(parts) > 2 and parts[0] in _SHELL_WRAPPERS and parts[1].startswith("-"):
        return parts[-1]
    return " ".join(parts)


def surfacing_tool(name: str, readers: Mapping[str, str], servers: Sequence[str]) -> str:
    """The name under which surfacing knows a host's tool, "" when nothing is to be said to it.

    `readers` are the host's own tools that look at something; `servers` are the marks of tools of
    MCP servers (`mcp__`). What goes through upwell's gateway is spoken to there.
    """
    if name in readers:
        return readers[name]
    for mark in servers:
        if name.startswith(mark):
            rest = name.removeprefix(mark)
            own = rest == OWN_SERVER or rest.startswith(_OWN_TOOLS)
            return "" if own or not rest else rest
    return ""


def block_texts(value: Any) -> list[Mapping[str, Any]] | None:
    """Content blocks of MCP that are texts, all of them; None where there is anything else."""
    if not isinstance(value, list) or not value:
        return None
    fine = all(isinstance(one, Mapping) and isinstance(one.get("text"), str) for one in value)
    return value if fine else None


def additional_context(event: Event, text: str) -> dict[str, Any]:
    """The shape that Claude Code began and several hosts took over."""
    return {"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": text}}
