"""The content blocks and `_meta` of tool results, parsed only as far as needed."""

from typing import Any

from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, kind_of


def text_block(text: str) -> bytes:
    """A raw text content block."""
    return dumps({"type": "text", "text": text})


def error_result(reason: str) -> Reply:
    """A tool result that tells the model why the call failed or was not made."""
    return Reply(result=dumps({"content": [{"type": "text", "text": reason}], "isError": True}))


def text_of(block: bytes) -> str:
    """The text of a raw content block; "" for a block of another kind or a malformed one."""
    try:
        text = RawObject.parse(block).value("text")
    except NotJson:
        return ""
    return text if isinstance(text, str) else ""


def content_of(result: RawObject) -> list[bytes] | None:
    """The raw content blocks of a result; None when there are none or they are malformed."""
    raw = result.get("content")
    if raw is None or kind_of(raw) != "array":
        return None
    try:
        return list(RawArray.parse(raw).items)
    except NotJson:
        return None


def with_content(result: RawObject, blocks: list[bytes]) -> RawObject:
    return result.replaced("content", RawArray(tuple(blocks)).encode())


OURS = frozenset({"surfacing_id", "upwell"})
"""The keys of `_meta` that are the gateway's own."""


def without_forged_meta(result: RawObject) -> RawObject:
    """A server's result, without the keys of `_meta` that only the gateway may write."""
    raw = result.get("_meta")
    if raw is None or kind_of(raw) != "object":
        return result
    meta = RawObject.parse(raw)
    forged = [name for name in OURS if name in meta]
    return result.replaced("_meta", meta.without(*forged).encode()) if forged else result


def with_meta(result: RawObject, name: str, value: Any) -> RawObject:
    """`result` with one more key in its `_meta`."""
    raw = result.get("_meta")
    meta = RawObject.parse(raw) if raw and kind_of(raw) == "object" else RawObject()
    return result.replaced("_meta", meta.replaced(name, dumps(value)).encode())
