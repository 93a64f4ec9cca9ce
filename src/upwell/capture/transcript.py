"""Candidates from a session's transcript: JSON lines as Claude Code and Codex write them.

Only what the user and the agent said is read, never what tools gave back: a page or a file must not
be able to propose a memory.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from upwell.capture.inbox import Proposal, now
from upwell.capture.rules import said_by_agent, said_by_user

MAX_BYTES = 2_000_000
MAX_PROPOSALS = 20
_READS = {"user": said_by_user, "assistant": said_by_agent}


def proposals_in(path: str, *, source: str, project: str | None, session: str) -> list[Proposal]:
    """What the end of a transcript proposes; nothing where the file is not the user's own."""
    found: dict[str, Proposal] = {}
    for who, text in _said(_tail(path)):
        for one in _READS[who](text):
            proposal = Proposal(
                text=one.text,
                source=source,
                why=one.why,
                namespace=one.namespace,
                project=project,
                session=session,
                at=now(),
            )
            found.setdefault(proposal.id, proposal)
    return list(found.values())[-MAX_PROPOSALS:]


def _tail(path: str) -> bytes:
    """The last `MAX_BYTES` of a regular file of ours, from the first whole line on."""
    if not path.startswith("/") or not path.endswith(".jsonl"):
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                return b""
            if info.st_size > MAX_BYTES:
                file.seek(info.st_size - MAX_BYTES)
                file.readline()
            return file.read(MAX_BYTES)
    except (OSError, ValueError):
        return b""


def _said(lines: bytes) -> Iterator[tuple[str, str]]:
    """Who said what, in order."""
    for line in lines.splitlines():
        try:
            entry = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if not isinstance(entry, dict) or entry.get("isMeta"):
            continue
        message = entry.get("message", entry.get("payload", entry))
        if not isinstance(message, dict) or message.get("role") not in _READS:
            continue
        yield from ((message["role"], text) for text in _texts(message))


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") in ("text", "input_text", "output_text"):
            text = block.get("text")
            if isinstance(text, str):
                yield text
