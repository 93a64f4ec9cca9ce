"""The messages and calls in a session's transcript: JSON lines as Claude Code and Codex write
them."""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

MAX_BYTES = 2_000_000
ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a transcript. `at` is in epoch seconds, 0 if the transcript gives no time."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Entry):
    """A text by the user or the agent (`role` is `user` or `assistant`)."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Entry):
    """A tool call by the agent."""

    id: str
    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)


def entries_of(path: str, max_bytes: int = MAX_BYTES) -> Iterator[Entry]:
    """The entries at the end of a transcript, in order; none if the file does not belong to the
    user."""
    for line in tail_of(path, max_bytes).splitlines():
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(entry, dict) or entry.get("isMeta"):
            continue
        message = entry.get("message", entry.get("payload", entry))
        if isinstance(message, dict):
            yield from _read(message, _time_of(entry.get("timestamp")))


def tail_of(path: str, max_bytes: int) -> bytes:
    """The last bytes of a regular `.jsonl` file that the user owns, starting at the first whole
    line; b"" for any other path."""
    if not path.startswith("/") or not path.endswith(".jsonl"):
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                return b""
            if info.st_size > max_bytes:
                file.seek(info.st_size - max_bytes)
                file.readline()
            return file.read(max_bytes)
    except (OSError, ValueError):
        return b""


def _read(message: Mapping[str, Any], at: float) -> Iterator[Entry]:
    """The entries in one record of a transcript. A record contains a message with its calls; Codex
    writes each call as a separate record.
    """
    kind, role = message.get("type"), message.get("role")
    if kind in ("function_call", "custom_tool_call"):
        args = message.get("arguments", message.get("input"))
        yield _call(message.get("call_id"), message.get("name"), args, at)
    elif role in ROLES:
        content = message.get("content")
        if isinstance(content, str):
            yield Message(role=role, text=content, at=at)
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _block(block, role, at)


def _block(block: Mapping[str, Any], role: str, at: float) -> Iterator[Entry]:
    kind, text = block.get("type"), block.get("text")
    if kind in ("text", "input_text", "output_text") and isinstance(text, str):
        yield Message(role=role, text=text, at=at)
    elif kind == "tool_use":
        yield _call(block.get("id"), block.get("name"), block.get("input"), at)


def _call(id: Any, tool: Any, args: Any, at: float) -> Call:
    if isinstance(args, str):
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            args = {"input": args}
    args = args if isinstance(args, dict) else {}
    return Call(id=str(id), tool=str(tool), args=args, at=at)


def _time_of(value: Any) -> float:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0
