"""What happened in a session, from its transcript: JSON lines as Claude Code and Codex write them.

Of what tools gave back only whether they failed is kept: a page or a file must not be able to
propose a memory.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

MAX_BYTES = 2_000_000
SPEAKERS = ("user", "assistant")
_EXIT = re.compile(r'(?:exited with code|exit code:?|"exit_code"\s*:)\s*(-?\d+)', re.IGNORECASE)
_LOOKED_AT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Something that happened. `at` is epoch seconds, 0 where the transcript does not say."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken(Entry):
    """`who` (`user`, `assistant`) said `text`."""

    who: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Entry):
    """The agent called a tool."""

    call: str
    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Entry):
    """A call came back; `failed` None where nothing says whether it did."""

    call: str
    failed: bool | None


def entries_of(path: str, max_bytes: int = MAX_BYTES) -> Iterator[Entry]:
    """What happened at the end of a transcript, in order; nothing where the file is not the user's
    own."""
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
    """The last bytes of a regular file of ours, from the first whole line on."""
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
    """A message of Claude Code's or Codex's, or a call of Codex's, which stands by itself."""
    kind, who = message.get("type"), message.get("role")
    if kind in ("function_call", "custom_tool_call"):
        given = message.get("arguments", message.get("input"))
        yield _called(message.get("call_id"), message.get("name"), given, at)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        failed = _failed(message.get("output"))
        yield Returned(call=str(message.get("call_id")), failed=failed, at=at)
    elif who in SPEAKERS:
        content = message.get("content")
        if isinstance(content, str):
            yield Spoken(who=who, text=content, at=at)
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _block(block, who, at)


def _block(block: Mapping[str, Any], who: str, at: float) -> Iterator[Entry]:
    kind, text = block.get("type"), block.get("text")
    if kind in ("text", "input_text", "output_text") and isinstance(text, str):
        yield Spoken(who=who, text=text, at=at)
    elif kind == "tool_use":
        yield _called(block.get("id"), block.get("name"), block.get("input"), at)
    elif kind == "tool_result":
        failed = block.get("is_error") is True
        yield Returned(call=str(block.get("tool_use_id")), failed=failed, at=at)


def _called(call: Any, tool: Any, given: Any, at: float) -> Called:
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError:
            given = {"input": given}
    args = given if isinstance(given, dict) else {}
    return Called(call=str(call), tool=str(tool), args=args, at=at)


def _failed(output: Any) -> bool | None:
    """Codex tells a command's exit status in words, or in a table beside its output."""
    if isinstance(output, dict):
        output = orjson.dumps(output).decode(errors="replace")
    if not isinstance(output, str):
        return None
    found = _EXIT.search(output[:_LOOKED_AT]) or _EXIT.search(output[-_LOOKED_AT:])
    return int(found[1]) != 0 if found else None


def _time_of(said: Any) -> float:
    try:
        return datetime.fromisoformat(said).timestamp() if isinstance(said, str) else 0.0
    except ValueError:
        return 0.0
