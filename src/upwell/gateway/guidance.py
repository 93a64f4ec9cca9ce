"""Calls that do not fit a schema which the list of tools does not show: what is said to them."""

import re

from upwell.gateway.arguments import fault
from upwell.gateway.relay import content_of, text_block, with_content
from upwell.ground.types import Reply
from upwell.wire.peer import INVALID_PARAMS
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps

_REFUSED = re.compile(r"-32602|validation error", re.IGNORECASE)
"""What the two official SDKs say when a tool is called with the wrong arguments."""


def refusal(name: str, schema: bytes, params: RawObject) -> Reply | None:
    """The answer to a call that the tool's schema refuses, for the model to read; None where
    nothing is certainly wrong."""
    try:
        wrong = fault(RawObject.parse(schema), params.value("arguments", {}))
    except NotJson:
        return None
    if not wrong:
        return None
    said = (f"[upwell] {name} was not called: {wrong}.", _told(name, schema))
    blocks = RawArray(tuple(map(text_block, said))).encode()
    return Reply(result=b'{"content":%b,"isError":true}' % blocks)


def explained(name: str, schema: bytes, reply: Reply) -> Reply:
    """A server's complaint about arguments, with the schema. Code and data stay, and every other
    reply."""
    if reply.error:
        error = RawObject.parse(reply.error)
        if error.get("code") != b"%d" % INVALID_PARAMS:
            return reply
        message = dumps(f"{error.value('message', '')}\n{_told(name, schema)}")
        return Reply(error=error.replaced("message", message).encode())
    if b'"isError"' not in reply.result:
        return reply
    result = RawObject.parse(reply.result)
    blocks = content_of(result)
    if not blocks or result.get("isError") != b"true":
        return reply
    if not _REFUSED.search(blocks[0][:4096].decode("utf-8", "replace")):
        return reply
    return Reply(result=with_content(result, [*blocks, text_block(_told(name, schema))]).encode())


def _told(name: str, schema: bytes) -> str:
    whole = schema.decode("utf-8", "replace")
    return f"[upwell] The input schema of {name}, which the list does not show: {whole}"
