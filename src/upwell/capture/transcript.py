"""Reads a session's transcript: what the agent wrote, and whether a compaction has removed the
memories that upwell delivered.

The text is read from the JSON lines that Claude Code and Codex write. The readers in
`replay/transcripts` leave out subagents and calls without a result, but this module includes them.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from upwell.hosts.events import plain_args

WRITTEN_BYTES = 500_000
HISTORY_BYTES = 20_000_000
_REWRITTEN = b'\n{"$set":{"messages":'
"""The mark of a compaction by Gemini CLI. The line with this mark repeats the whole history.
Source: `chatCompressionService` and recorded chats of Gemini CLI 0.61.0.
"""
_CALLS = ("function_call", "custom_tool_call")
_TEXTS = ("text", "output_text")


def written_in(path: str, since: float) -> list[tuple[float, str]]:
    """Return the agent's messages and the arguments of its calls from the time `since` on, each
    with its timestamp. The arguments include the content of files that the agent wrote, which no
    hook reports."""
    texts: list[tuple[float, str]] = []
    for line in _tail_of(path, WRITTEN_BYTES).splitlines():
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(record, dict) or record.get("isMeta"):
            continue
        at = _time_of(record.get("timestamp"))
        message = record.get("message", record.get("payload", record))
        if at >= since and isinstance(message, dict):
            texts += ((at, text) for text in _texts_of(message))
    return texts


def has_lost_marks(path: str, marks: Sequence[str]) -> bool:
    """Return whether a compaction by Gemini CLI has removed one of the texts in `marks` from the
    history. Returns False if the file does not belong to the user.
    """
    history = _tail_of(path, HISTORY_BYTES)
    rewritten = history.rfind(_REWRITTEN)
    if rewritten < 0:
        return False
    encoded = [mark.encode() for mark in marks]
    return any(
        history.find(mark, 0, rewritten) >= 0 > history.find(mark, rewritten) for mark in encoded
    )


def _tail_of(path: str, max_bytes: int) -> bytes:
    """Return the last whole lines of a regular `.jsonl` file that the user owns, up to `max_bytes`.
    Returns b"" for any other path."""
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


def _texts_of(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the agent's texts in one record. Claude Code records a message together with its calls,
    but Codex records each call separately.
    """
    if message.get("type") in _CALLS:
        yield _arguments(message.get("arguments", message.get("input")))
    elif message.get("role") == "assistant":
        content = message.get("content")
        if isinstance(content, str):
            yield content
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict):
                yield from _texts_of_block(block)


def _texts_of_block(block: Mapping[str, Any]) -> Iterator[str]:
    kind, text = block.get("type"), block.get("text")
    if kind in _TEXTS and isinstance(text, str):
        yield text
    elif kind == "tool_use":
        yield _arguments(block.get("input"))


def _arguments(args: Any) -> str:
    if isinstance(args, str):
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            args = {"input": args}
    return "\n".join(value for value in plain_args(args).values() if isinstance(value, str))


def _time_of(value: Any) -> float:
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0
