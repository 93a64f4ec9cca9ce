"""Requests on their way in and results on their way out, opened only as far as needed."""

from typing import Any

from upwell.gateway.catalog import CONTEXT_QUERY, Target
from upwell.ground.errors import UpwellError
from upwell.ground.types import Reply, ToolCall
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, kind_of, loads


def outgoing(params: RawObject, target: Target, trace_id: str, principal: str = "") -> ToolCall:
    """The call to send: the upstream's own tool name, and no argument more or less than the
    agent gave, but for `_context_query`, which is ours unless the tool declares it."""
    query = ""
    raw = params.get("arguments")
    if raw is not None and kind_of(raw) == "object":
        arguments = RawObject.parse(raw)
        value = _readable(arguments).get(CONTEXT_QUERY)
        query = value if isinstance(value, str) else ""
        if CONTEXT_QUERY in arguments and not target.declares_query:
            arguments = arguments.without(CONTEXT_QUERY)
            params = params.replaced("arguments", arguments.encode())
        args = _readable(arguments)
    else:
        args = {}
    return ToolCall(
        server=target.upstream.name if target.upstream else "",
        tool=target.tool,
        params=params.replaced("name", dumps(target.tool)).encode(),
        args={**args, CONTEXT_QUERY: query} if query else args,
        query=query,
        annotations=target.annotations,
        declared=target.declared,
        trace_id=trace_id,
        principal=principal,
    )


def _readable(arguments: RawObject) -> dict[str, Any]:
    """Arguments decoded for reading; one that is nested too deeply is left out."""
    found: dict[str, Any] = {}
    for key, value in arguments.members:
        try:
            found[loads(key)] = loads(value)
        except NotJson:
            continue
    return found


def text_block(text: str) -> bytes:
    """A text content block of our own."""
    return dumps({"type": "text", "text": text})


def failure(error: UpwellError) -> Reply:
    """A tool result that says what went wrong and what to do, for the model to read."""
    return Reply(result=dumps({"content": [{"type": "text", "text": str(error)}], "isError": True}))


def content_of(result: RawObject) -> list[bytes] | None:
    """The raw content blocks of a result, None when it has none that can be read."""
    raw = result.get("content")
    if raw is None or kind_of(raw) != "array":
        return None
    try:
        return list(RawArray.parse(raw).items)
    except NotJson:
        return None


def with_content(result: RawObject, blocks: list[bytes]) -> RawObject:
    return result.replaced("content", RawArray(tuple(blocks)).encode())


def with_meta(result: RawObject, name: str, value: Any) -> RawObject:
    """`result` with one more key in its `_meta`."""
    raw = result.get("_meta")
    meta = RawObject.parse(raw) if raw and kind_of(raw) == "object" else RawObject()
    return result.replaced("_meta", meta.replaced(name, dumps(value)).encode())
