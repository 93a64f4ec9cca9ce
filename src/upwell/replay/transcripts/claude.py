"""Claude Code: `~/.claude/projects/FOLDER/SESSION.jsonl`, one record per line.

A record with a message has the `type` user or assistant. A tool's result is a block in a user
message and refers to its call by `tool_use_id`. Sidechains, which belong to subagents, and meta
records, which the host writes, are skipped.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from upwell.episodes.events import Event, Kind
from upwell.replay.transcripts.base import (
    Draft,
    Format,
    Tally,
    array,
    closed,
    folder,
    moment,
    records,
    table,
    text,
    text_of,
)

_SESSION_NAME = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REFUSED = "The user doesn't want to proceed with this tool use."


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session, from the byte `start` on."""
    return closed(_events(path, start, tally))


def _events(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    draft = Draft(path.stem, "claude", tally)
    has_name = bool(_SESSION_NAME.fullmatch(path.stem))
    calls: dict[str, Mapping[str, Any]] = {}
    compacted = False
    for draft.offset, record in records(path, start, tally):
        if record.get("isSidechain"):
            continue
        draft.cwd = folder(record.get("cwd")) or draft.cwd
        if not has_name and text(record.get("sessionId")):
            draft.session, has_name = record["sessionId"], True
        at = moment(record.get("timestamp"))
        if record.get("subtype") == "compact_boundary" or record.get("isCompactSummary"):
            if not compacted:
                yield draft.event(Kind.COMPACT, at)
            compacted = True
            continue
        for event in _of_record(draft, record, at, calls):
            compacted = False
            yield event


def _of_record(
    draft: Draft, record: Mapping[str, Any], at: float, calls: dict[str, Mapping[str, Any]]
) -> Iterator[Event]:
    kind, message = record.get("type"), table(record.get("message"))
    if record.get("isMeta") or record.get("isApiErrorMessage"):
        return
    if kind == "assistant":
        yield from _of_assistant(draft, message.get("content"), at, calls)
    elif kind == "user":
        yield from _of_user(draft, message.get("content"), at, calls)
    elif kind == "attachment":
        queued = table(record.get("attachment"))
        if queued.get("type") == "queued_command":
            yield from draft.prompt(text_of(queued.get("prompt")), at)


def _of_assistant(
    draft: Draft, content: Any, at: float, calls: dict[str, Mapping[str, Any]]
) -> Iterator[Event]:
    if isinstance(content, str):
        yield from draft.say(content, at)
    for block in map(table, array(content)):
        if block.get("type") == "text":
            yield from draft.say(block.get("text"), at)
        elif block.get("type") == "tool_use":
            calls[text(block.get("id"))] = block


def _of_user(
    draft: Draft, content: Any, at: float, calls: dict[str, Mapping[str, Any]]
) -> Iterator[Event]:
    blocks = [table(block) for block in array(content)]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    for block in results:
        call = calls.pop(text(block.get("tool_use_id")), None)
        out = text_of(block.get("content"))
        if call is None or out.startswith(_REFUSED):
            continue
        failed = block.get("is_error") is True
        yield draft.tool(call.get("name"), call.get("input"), out, failed=failed, at=at)
    if not results:
        words = [text(block.get("text")) for block in blocks if block.get("type") == "text"]
        yield from draft.prompt(content if isinstance(content, str) else "\n".join(words), at)


def _recognises(path: Path, head: bytes) -> bool:
    return path.suffix == ".jsonl" and any(
        mark in head
        for mark in (b'"sessionId":', b'"type":"file-history-snapshot"', b'"type":"summary"')
    )


FORMAT = Format(
    name="claude",
    recognises=_recognises,
    read=read,
    resumes=True,
)
