"""OpenAI's two APIs: chat completions and responses."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tests.live.talk import Call, Said, as_events, as_json, text_in

_ROLES = {"assistant": "model", "tool": "result", "user": "user"}
"""Every other role (system, developer) counts as the system."""


class Chat:
    """`/chat/completions`: messages, with calls beside their text."""

    def speaks(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/chat/completions")

    def said(self, body: Mapping[str, Any]) -> Sequence[Said]:
        return [part for message in body.get("messages", ()) for part in _of_message(message)]

    def reply(self, path: str, body: Mapping[str, Any], next: Call | str) -> tuple[str, bytes]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if isinstance(next, str):
            message["content"], why = next, "stop"
        else:
            function = {"name": next.tool, "arguments": json.dumps(dict(next.args))}
            call = {"index": 0, "id": _id("call"), "type": "function", "function": function}
            message["tool_calls"], why = [call], "tool_calls"
        head = {"id": _id("chatcmpl"), "created": 1, "model": body.get("model", "fake")}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": why}
            answer = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return as_json({**head, **answer})
        head["object"] = "chat.completion.chunk"
        deltas: list[tuple[dict[str, Any], str | None]] = [(message, None), ({}, why)]
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
            for delta, reason in deltas
        ]
        return as_events([*chunks, {**head, "choices": [], "usage": usage}], end="[DONE]")


class Responses:
    """`/responses`: a list of items, calls and their outputs among them."""

    def speaks(self, path: str) -> bool:
        return path.partition("?")[0].endswith("/responses")

    def said(self, body: Mapping[str, Any]) -> Sequence[Said]:
        options = body.get("input", ())
        items = [{"role": "user", "content": options}] if isinstance(options, str) else options
        return [Said("system", text_in(body.get("instructions"))), *map(_of_item, items)]

    def reply(self, path: str, body: Mapping[str, Any], next: Call | str) -> tuple[str, bytes]:
        item = _item(next)
        response = {
            "id": _id("resp"),
            "object": "response",
            "created_at": 1,
            "model": body.get("model", "fake"),
            "status": "completed",
            "output": [item],
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 15,
            },
        }
        if not body.get("stream"):
            return as_json(response)
        events = list(_stream(response, item))
        numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
        return as_events(numbered, named=True)


def _of_message(message: Mapping[str, Any]) -> Iterator[Said]:
    text = text_in(message.get("content"))
    if text:
        yield Said(_ROLES.get(message["role"], "system"), text)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield Said("call", json.dumps({function["name"]: function["arguments"]}))


def _of_item(item: Mapping[str, Any]) -> Said:
    kind = str(item.get("type") or "message")
    if kind.endswith("_output"):
        return Said("result", text_in(item.get("output")))
    if kind.endswith("_call"):
        return Said("call", json.dumps(item))
    if kind == "message":
        return Said(_ROLES.get(item.get("role", ""), "system"), text_in(item.get("content")))
    return Said("model", text_in(item))


def _item(next: Call | str) -> dict[str, Any]:
    if isinstance(next, str):
        content = [{"type": "output_text", "text": next, "annotations": []}]
        kind = {"type": "message", "role": "assistant", "status": "completed"}
        return {"id": _id("msg"), **kind, "content": content}
    if isinstance(next.args, str):
        fields = {"call_id": _id("call"), "name": next.tool, "input": next.args}
        return {"id": _id("ctc"), "type": "custom_tool_call", "status": "completed", **fields}
    arguments = json.dumps(dict(next.args))
    namespace, _, name = next.tool.rpartition("/")
    fields = {"call_id": _id("call"), "name": name, "arguments": arguments}
    fields |= {"namespace": namespace} if namespace else {}
    return {"id": _id("fc"), "type": "function_call", "status": "completed", **fields}


def _stream(response: Mapping[str, Any], item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    position = {"output_index": 0, "item_id": item["id"]}
    yield {"type": "response.created", "response": begun}
    if item["type"] == "message":
        empty = {**item, "status": "in_progress", "content": []}
        part, text = item["content"][0], item["content"][0]["text"]
        inner = {**position, "content_index": 0}
        yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
        yield {"type": "response.content_part.added", **inner, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **inner, "delta": text}
        yield {"type": "response.output_text.done", **inner, "text": text}
        yield {"type": "response.content_part.done", **inner, "part": part}
    elif item["type"] == "custom_tool_call":
        empty, delta = {**item, "status": "in_progress", "input": ""}, item["input"]
        yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
        yield {"type": "response.custom_tool_call_input.delta", **position, "delta": delta}
        yield {"type": "response.custom_tool_call_input.done", **position, "input": delta}
    else:
        empty = {**item, "status": "in_progress", "arguments": ""}
        arguments = item["arguments"]
        yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
        yield {"type": "response.function_call_arguments.delta", **position, "delta": arguments}
        yield {"type": "response.function_call_arguments.done", **position, "arguments": arguments}
    yield {"type": "response.output_item.done", "output_index": 0, "item": dict(item)}
    yield {"type": "response.completed", "response": dict(response)}


def _id(kind: str) -> str:
    return f"{kind}_{uuid4().hex[:20]}"


CHAT = Chat()
RESPONSES = Responses()
