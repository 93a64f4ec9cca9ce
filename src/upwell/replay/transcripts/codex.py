"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-….jsonl`, one item per line.

An item is `{"timestamp", "type", "payload"}`. Until mid-2025 it was the payload alone. A call and
its output share a `call_id`. Subagents have their own files, which are skipped.
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
    holds,
    moment,
    records,
    table,
    text,
    text_of,
)

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_EXIT = re.compile(r'(?:exited with code|exit code:?|"exit_code"\s*:)\s*(-?\d+)', re.IGNORECASE)
_EDGE_CHARS = 2_000
_NAME = re.compile(r"\Arollout-.*?-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def read(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    """The events of a session, from the byte `start` on."""
    return closed(_events(path, start, tally))


def _events(path: Path, start: int, tally: Tally) -> Iterator[Event]:
    name = _NAME.match(path.stem)
    draft = Draft(name[1] if name else path.stem, "codex", tally)
    has_prompts = holds(path, b'"user_message"')
    calls: dict[str, Mapping[str, Any]] = {}
    compacted = False
    for number, (draft.offset, record) in enumerate(records(path, start, tally)):
        kind, at = record.get("type"), moment(record.get("timestamp"))
        payload = table(record.get("payload")) or record
        draft.cwd = folder(payload.get("cwd")) or draft.cwd
        if number == 0 and isinstance(payload.get("source"), dict) and _is_subagent(payload):
            return
        if kind == "compacted" or payload.get("type") == "context_compacted":
            if not compacted:
                yield draft.event(Kind.COMPACT, at)
            compacted = True
            continue
        for event in _of_item(draft, payload, at, calls, has_prompts):
            compacted = False
            yield event


def _is_subagent(payload: Mapping[str, Any]) -> bool:
    return any(name.lower().startswith("sub") for name in payload["source"])


def _of_item(
    draft: Draft,
    item: Mapping[str, Any],
    at: float,
    calls: dict[str, Mapping[str, Any]],
    has_prompts: bool,
) -> Iterator[Event]:
    kind = item.get("type")
    if kind == "user_message":
        yield from draft.prompt(text(item.get("message")), at)
    elif kind == "message" and item.get("role") == "assistant":
        yield from draft.say(text_of(item.get("content")), at)
    elif kind == "message" and item.get("role") == "user" and not has_prompts:
        for block in array(item.get("content")):
            yield from draft.prompt(text_of(block), at)
    elif kind in _CALLS:
        calls[text(item.get("call_id"))] = item
        if kind == "local_shell_call" and item.get("status") == "completed":
            yield from _answered(draft, item, "", at, calls)
    elif kind in _OUTPUTS:
        yield from _answered(draft, item, item.get("output"), at, calls)
    elif kind == "web_search_call":
        action = table(item.get("action"))
        yield draft.tool(
            "web_search", {"query": text(action.get("query"))}, "", failed=False, at=at
        )


def _answered(
    draft: Draft,
    item: Mapping[str, Any],
    output: Any,
    at: float,
    calls: dict[str, Mapping[str, Any]],
) -> Iterator[Event]:
    call = calls.pop(text(item.get("call_id")), None)
    if call is None:
        return
    if call.get("type") == "local_shell_call":
        name, arguments = "local_shell", table(call.get("action"))
    else:
        name, arguments = text(call.get("name")), call.get("arguments", call.get("input"))
    out = text_of(output)
    yield draft.tool(name, arguments, out, failed=_failed(output, out), at=at)


def _failed(output: Any, out: str) -> bool:
    """True if the call failed. Codex writes a command's exit status as text before or after the
    output."""
    if table(output).get("success") is False:
        return True
    status = _EXIT.search(out[:_EDGE_CHARS]) or _EXIT.search(out[-_EDGE_CHARS:])
    return status is not None and int(status[1]) != 0


def _recognises(path: Path, head: bytes) -> bool:
    if path.suffix != ".jsonl":
        return False
    return path.name.startswith("rollout-") or b'"type":"session_meta"' in head.replace(b" ", b"")


FORMAT = Format(
    name="codex",
    recognises=_recognises,
    read=read,
    resumes=True,
)
