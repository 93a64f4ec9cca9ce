"""Anthropic's Messages API (`/v1/messages`), as Claude Code speaks it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tests.live.talk import Call, Said, as_events, as_json, text_in

_USAGE = {"input_tokens": 10, "output_tokens": 5}


class Messages:
    """The system prompt is a field of its own; calls and results are blocks of messages."""

    def speaks(self, path: str) -> bool:
        return path.partition("?")[0].endswith(("/v1/messages", "/v1/messages/count_tokens"))

    def said(self, body: Mapping[str, Any]) -> Sequence[Said]:
        parts = [Said("system", text_in(body.get("system")))]
        for message in body.get("messages", ()):
            parts += _parts(message["role"], message["content"])
        return parts

    def reply(self, path: str, body: Mapping[str, Any], next: Call | str) -> tuple[str, bytes]:
        if "count_tokens" in path:
            return as_json({"input_tokens": len(json.dumps(body)) // 4})
        block, stop = _block(next)
        message = {
            "id": f"msg_{uuid4().hex[:20]}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "fake"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _USAGE,
        }
        if not body.get("stream"):
            return as_json({**message, "content": [block], "stop_reason": stop})
        return as_events(list(_stream(message, block, stop)), named=True)


def _parts(role: str, content: Any) -> Iterator[Said]:
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        if block["type"] == "tool_use":
            yield Said("call", json.dumps({block["name"]: block["input"]}))
        elif block["type"] == "tool_result":
            yield Said("result", text_in(block.get("content")))
        else:
            kind = {"assistant": "model", "system": "system"}.get(role, "user")
            yield Said(kind, text_in(block))


def _block(next: Call | str) -> tuple[dict[str, Any], str]:
    if isinstance(next, str):
        return {"type": "text", "text": next}, "end_turn"
    fields = {"name": next.tool, "input": dict(next.args)}
    return {"type": "tool_use", "id": f"toolu_{uuid4().hex[:20]}", **fields}, "tool_use"


def _stream(message: dict[str, Any], block: dict[str, Any], stop: str) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": message}
    if block["type"] == "text":
        begun = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        begun = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    yield {"type": "content_block_start", "index": 0, "content_block": begun}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": _USAGE}
    yield {"type": "message_stop"}


MESSAGES = Messages()
