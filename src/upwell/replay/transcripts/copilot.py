"""Copilot CLI: `~/.copilot/session-state/SESSION/events.jsonl`; `SESSION.jsonl` before 0.0.342.

Every line is `{"type", "data", "id", "timestamp", "parentId"}`. A call begins with
`tool.execution_start` and ends with `tool.execution_complete`, which share a `toolCallId`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.episodes.events import Event, Kind
from upwell.replay.transcripts.base import (
    Draft,
    Format,
    Tally,
    closed,
    folder,
    moment,
    records,
    table,
    text,
    text_of,
)

_OWN_TOOLS = ("report_intent",)
"""Tools with which the agent reports to its host."""


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session, from the byte `start` on."""
    return closed(_events(path, start, tally))


def _events(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    session_name = path.parent.name if path.name == "events.jsonl" else path.stem
    draft = Draft(session_name, "copilot", tally)
    calls: dict[str, Mapping[str, Any]] = {}
    for draft.offset, record in records(path, start, tally):
        kind, data = text(record.get("type")), table(record.get("data"))
        at = moment(record.get("timestamp"))
        if data.get("parentToolCallId") or data.get("agentId"):
            continue
        if kind == "session.start":
            draft.session = text(data.get("sessionId")) or draft.session
        draft.cwd = folder(table(data.get("context")).get("cwd") or data.get("cwd")) or draft.cwd
        yield from _of_record(draft, kind, data, at, calls)


def _of_record(
    draft: Draft,
    kind: str,
    data: Mapping[str, Any],
    at: float,
    calls: dict[str, Mapping[str, Any]],
) -> Iterator[Event]:
    if kind == "user.message" and data.get("source") in (None, "user"):
        yield from draft.prompt(text(data.get("content")), at)
    elif kind == "assistant.message":
        yield from draft.say(data.get("content"), at)
    elif kind == "tool.execution_start":
        calls[text(data.get("toolCallId"))] = data
    elif kind == "tool.execution_complete":
        call = calls.pop(text(data.get("toolCallId")), None)
        if call is not None and call.get("toolName") not in _OWN_TOOLS:
            out = text_of(data.get("result")) or text(table(data.get("error")).get("message"))
            failed = data.get("success") is False
            yield draft.tool(_name(call), call.get("arguments"), out, failed=failed, at=at)
    elif kind == "session.compaction_complete" and data.get("success") is not False:
        yield draft.event(Kind.COMPACT, at)


def _name(call: Mapping[str, Any]) -> str:
    """The name of the tool. For an MCP tool, it includes the server's name."""
    server, tool = text(call.get("mcpServerName")), text(call.get("mcpToolName"))
    return f"mcp__{server}__{tool}" if server and tool else text(call.get("toolName"))


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and b'"session.start"' in head and b'"data"' in head


FORMAT = Format(
    name="copilot",
    recognises=_recognises,
    read=read,
    resumes=True,
)
