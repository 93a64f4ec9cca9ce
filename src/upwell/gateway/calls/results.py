"""The content blocks and `_meta` of tool results, parsed only as far as needed."""

import json
from typing import Any

from upwell.ground.types.rpc import Reply
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps, kind_of


def text_block(text: str) -> bytes:
    """Return a raw text content block."""
    return dumps({"type": "text", "text": text})


def error_result(reason: str) -> Reply:
    """Return a tool result that tells the model why the call failed or was not made."""
    return Reply(result=dumps({"content": [{"type": "text", "text": reason}], "isError": True}))


def text_of(block: bytes) -> str:
    """Return the text of a raw content block, or "" if it is malformed or has no text."""
    try:
        text = RawObject.parse(block).value("text")
    except NotJson:
        return ""
    return text if isinstance(text, str) else ""


def has_constant(raw: bytes) -> bool:
    """Return whether a value contains NaN or Infinity, which some servers write although JSON has
    no such numbers."""
    found: list[str] = []
    try:
        json.loads(raw, parse_int=float, parse_constant=found.append)
    except (ValueError, RecursionError):
        return False
    return bool(found)


def content_of(result: RawObject) -> list[bytes] | None:
    """Return the raw content blocks of a result, or None if `content` is missing or malformed."""
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
"""The keys of `_meta` that only the gateway may write."""


def without_forged_meta(result: RawObject) -> RawObject:
    """Remove the keys in `OURS` from the `_meta` of a server's result."""
    raw = result.get("_meta")
    if raw is None or kind_of(raw) != "object":
        return result
    meta = RawObject.parse(raw)
    forged = [name for name in OURS if name in meta]
    return result.replaced("_meta", meta.without(*forged).encode()) if forged else result


def with_meta(result: RawObject, name: str, value: Any) -> RawObject:
    """Add a key to the `_meta` of a result."""
    raw = result.get("_meta")
    meta = RawObject.parse(raw) if raw and kind_of(raw) == "object" else RawObject()
    return result.replaced("_meta", meta.replaced(name, dumps(value)).encode())
