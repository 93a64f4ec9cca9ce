"""Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.json`; `.jsonl` since 0.39.

In both forms a session is a list of messages, which contain calls and their results. A `.jsonl`
file is only appended to. A message is repeated whenever it grows, `$rewindTo` removes a message and
all later ones, and `$set` changes fields of the session. `{"$set": {"messages": […]}}` replaces the
model's history: at the start, when the user resumes a session, interrupts a turn, or when the
history is compressed. Messages that it leaves out still took place.

Records do not name their author. Source of what the host writes in the user's name:
`chatRecordingService` and `client` of Gemini CLI 0.61.0.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from upwell.episodes.events import Kind, SessionEvent
from upwell.hosts.events import COMMANDS
from upwell.replay.transcripts.base import (
    ReadTally,
    SessionDraft,
    TranscriptFormat,
    UnreadableTranscript,
    array,
    closed,
    document,
    folder,
    moment,
    records,
    table,
    text,
    text_of,
    tool_name,
    without,
)

_REFERENCES = "--- Content from referenced files ---"
_PREAMBLE = ("<session_context>", "</session_context>")
_HOOK_CONTEXT = ("<hook_context>", "</hook_context>")
_MCP_SERVER = " MCP Server)"
_UNTRUSTED = ("<untrusted_context>\n", "\n</untrusted_context>")
_NOTICES = (
    "<state_snapshot>",
    "Here is the user's editor context as a JSON object.",
    "Here is a summary of changes in the user's editor context, in JSON format.",
    "I ran the following shell command:\n",
    "System: Potential loop detected.",
)
"""The beginnings of messages that Gemini CLI writes in the user's name."""
_SECTION = re.compile(
    r"(Exit Code|Signal|Error|Background PIDs|Process Group PGID): (.*)", re.DOTALL
)
_END_CHARS = 2_000
_CANCELLED = ("Command was cancelled by user", "Command was automatically cancelled")
_COMPACTION = "compaction"
"""The type of the message that stands for a compression."""
_IGNORED_TYPES = frozenset({"info", "error", "warning"})
_PENDING = frozenset({"validating", "scheduled", "executing", "awaiting_approval"})
_IGNORED_FIELDS = frozenset(
    """
    lastUpdated summary memoryScratchpad sessionId projectHash startTime kind directories
    """.split()
)


def read(path: Path, start: int, tally: ReadTally) -> Iterator[SessionEvent]:
    yield from closed(_events(path, tally))


def _events(path: Path, tally: ReadTally) -> Iterator[SessionEvent]:
    chat = _from_lines(path, tally) if path.suffix == ".jsonl" else _from_document(path, tally)
    if chat.session.get("kind") == "subagent":
        return
    name = text(chat.session.get("sessionId")) or path.stem
    draft = SessionDraft(name, "gemini", tally, _folder(path, chat.session))
    shown = _Shown()
    for message in chat.told.values():
        draft.now, kind = moment(message.get("timestamp")), message.get("type")
        if kind == _COMPACTION:
            yield draft.event(Kind.COMPACT)
        elif kind == "user":
            yield from draft.prompt(shown.prompt(message))
        elif kind == "gemini":
            yield from draft.say(_words(message.get("content")))
            for call in map(table, array(message.get("toolCalls"))):
                yield from _called(draft, call)


class _Shown(Struct):
    """What Gemini CLI displayed as the last prompt. It displays that again for messages with which
    it or a hook makes the agent continue."""

    display: str = ""
    content: str = ""

    def prompt(self, message: Mapping[str, Any]) -> str:
        """The user's words in a message; "" if it has others."""
        content = _words(message.get("content"))
        display = _words(message.get("displayContent"))
        is_continuation = bool(display) and display == self.display and content != self.content
        self.display, self.content = display or content, content
        if is_continuation or content.startswith(_NOTICES):
            return ""
        return without(display or content, *_PREAMBLE).split(_REFERENCES)[0]


def _words(content: Any) -> str:
    """The text of a message, without the model's thoughts and the results of calls."""
    if isinstance(content, list):
        parts = [part for part in content if not table(part).get("thought")]
        texts = (text(table(part).get("text")) or text(part) for part in parts)
        return "\n".join(filter(None, texts)).strip()
    return text_of(content)


def _called(draft: SessionDraft, call: Mapping[str, Any]) -> Iterator[SessionEvent]:
    """Yield a call. The name of an MCP tool does not tell where the server's name ends, but the
    name that Gemini CLI displays does: `say (up MCP Server)`."""
    status = text(call.get("status"))
    out = _result(call)
    if status in _PENDING or (status == "cancelled" and not out):
        return
    if status not in ("success", "error", "cancelled"):
        draft.tally.miss(f"toolCalls.{status}")
        return
    name = text(call.get("name"))
    failed = status != "success" or (tool_name(name) == COMMANDS and _has_failed(out))
    tool, is_mcp, server = text(call.get("displayName")).partition(" (")
    server = server.removesuffix(_MCP_SERVER)
    if is_mcp and name == f"mcp_{server}_{tool}":
        name = f"mcp__{server}__{tool}"
    at = moment(call.get("timestamp"))
    yield draft.tool(name, call.get("args"), out, failed=failed, at=at)


def _result(call: Mapping[str, Any]) -> str:
    """A call's result without what Gemini CLI and hooks put around it. A call that was cancelled
    before it ran has none."""
    responses = [
        table(table(table(part).get("functionResponse")).get("response"))
        for part in array(call.get("result"))
    ]
    if call.get("status") == "cancelled":
        out = "\n".join(text(response.get("output")) for response in responses)
    else:
        out = "\n".join(filter(None, map(text_of, responses))) or text(call.get("resultDisplay"))
    out = without(out, *_HOOK_CONTEXT).rstrip()
    return out.removeprefix(_UNTRUSTED[0]).removesuffix(_UNTRUSTED[1])


def _has_failed(out: str) -> bool:
    """True if a command's result ends with an exit status or a signal. Gemini CLI writes them after
    the output, and only if the command failed; older versions always wrote them."""
    if out.startswith(_CANCELLED):
        return True
    for line in reversed(out[-_END_CHARS:].splitlines()):
        section = _SECTION.fullmatch(line)
        if section is None:
            return False
        value = section[2].strip()
        if section[1] in ("Exit Code", "Signal") and value not in ("0", "(none)", ""):
            return True
    return False


class _Chat(Struct):
    """The fields of a session and its messages: `told` has all that took place, `live` the ids of
    those that the model still has."""

    session: dict[str, Any] = field(default_factory=dict[str, Any])
    told: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    live: dict[str, None] = field(default_factory=dict[str, None])

    def add(self, message: Mapping[str, Any]) -> None:
        self.told[message["id"]] = message
        self.live[message["id"]] = None

    def rewind(self, first: str) -> None:
        """Remove the message `first` and all later ones; all if there is no such message."""
        names = list(self.live)
        for name in names[names.index(first) if first in self.live else 0 :]:
            del self.live[name]
            self.told.pop(name, None)

    def rewrite(self, messages: Mapping[str, Mapping[str, Any]], at: Any) -> None:
        """Replace the model's history. It was compressed if messages are gone and others, the
        summary and copies of what it keeps, took their place."""
        gone = [self.told[name] for name in self.live if name not in messages]
        fresh = {name: entry for name, entry in messages.items() if name not in self.told}
        summaries = map(_words, (entry.get("content") for entry in fresh.values()))
        if any(map(_is_event, gone)) and any(summaries):
            self.told[f"{_COMPACTION} {len(self.told)}"] = {"type": _COMPACTION, "timestamp": at}
            self.told |= {name: {} for name in fresh}
        else:
            self.told |= fresh
        self.live = dict.fromkeys(messages)


def _is_event(message: Mapping[str, Any]) -> bool:
    if message.get("type") not in ("user", "gemini"):
        return False
    content = _words(message.get("content"))
    return bool(message.get("toolCalls") or without(content, *_PREAMBLE).strip())


def _from_document(path: Path, tally: ReadTally) -> _Chat:
    session = document(path)
    if not isinstance(session.get("messages"), list):
        raise UnreadableTranscript("it contains no messages")
    chat = _Chat(session)
    for number, message in enumerate(map(table, session["messages"])):
        tally.records += 1
        _note(tally, message)
        chat.told[text(message.get("id")) or str(number)] = message
    return chat


def _from_lines(path: Path, tally: ReadTally) -> _Chat:
    chat = _Chat()
    for _, record in records(path, 0, tally):
        changes = record.get("$set")
        if isinstance(record.get("$rewindTo"), str):
            chat.rewind(record["$rewindTo"])
        elif isinstance(record.get("id"), str):
            _note(tally, record)
            chat.add(record)
        elif isinstance(changes, dict) or isinstance(record.get("sessionId"), str):
            fields = changes if isinstance(changes, dict) else record
            messages = fields.get("messages")
            if isinstance(messages, list):
                entries = [entry for entry in messages if isinstance(table(entry).get("id"), str)]
                history = {entry["id"]: entry for entry in entries}
                chat.rewrite(history, fields.get("lastUpdated"))
            for name in fields.keys() - _IGNORED_FIELDS - {"messages"}:
                tally.miss(f"$set.{name}")
            chat.session |= {name: fields[name] for name in fields.keys() - {"messages"}}
        else:
            tally.miss(next(iter(record), ""))
    return chat


def _note(tally: ReadTally, message: Mapping[str, Any]) -> None:
    if message.get("type") not in ("user", "gemini", *_IGNORED_TYPES):
        tally.miss(message.get("type"))


def _folder(path: Path, session: Mapping[str, Any]) -> str | None:
    """The session's folder, which newer versions record beside the chats."""
    try:
        root = (path.parent.parent / ".project_root").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        root = ""
    return folder(root) or next(filter(None, map(folder, array(session.get("directories")))), None)


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix not in (".json", ".jsonl") or b'"sessionId"' not in head:
        return False
    return b'"projectHash"' in head or path.parent.name == "chats"


FORMAT = TranscriptFormat(
    name="gemini",
    recognises=_recognises,
    read=read,
    written_for="0.61.0",
)
