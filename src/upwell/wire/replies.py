"""What an HTTP response says to a request, as the line that answers it: always one, also where the
response is too large, is no answer, or never came."""

from typing import TYPE_CHECKING

from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.lines import Line
from upwell.wire.peer import INTERNAL_ERROR, answer_line, error_body, read_message
from upwell.wire.rawjson import NotJson, RawObject
from upwell.wire.sse import Event

if TYPE_CHECKING:
    import httpx2


async def body_of(response: "httpx2.Response", max_bytes: int, identity: bytes) -> Line:
    """The whole body of what answers a request; one that is too large is read no further."""
    parts: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > max_bytes:
            return too_large(identity, size)
        parts.append(chunk)
    return Line(b"".join(parts))


def too_large(identity: bytes, size: int) -> Line:
    """The line for an answer over the cap: it is that request's, whatever stands in it."""
    return Line(b'{"id":%b' % identity, oversize=size)


def is_answer(event: Event, identity: bytes) -> bool:
    """Is this event the answer to that request?"""
    try:
        message = read_message(event.data)
    except NotJson:
        return False
    return message.id == identity and message.method is None


def unanswered(identity: bytes, why: str) -> Line:
    """The last word on a request, where it got no other."""
    return Line(b"", lost=identity, why=why)


def refused(identity: bytes, status: int, body: bytes, wants: str = "") -> bytes:
    """The line for a request that HTTP refused: what is to be done about it where that is known,
    else the server's own error where it gave one."""
    if wants:
        return answer_line(identity, Reply(error=error_body(INTERNAL_ERROR, wants)))
    try:
        error = RawObject.parse(body).get("error")
        if error is not None and "code" in RawObject.parse(error):
            return answer_line(identity, Reply(error=error))
    except NotJson:
        LOG.debug("HTTP %d without a JSON-RPC error", status)
    said = " ".join(body.decode(errors="replace").split())[:200]
    why = error_body(INTERNAL_ERROR, f"the server answered HTTP {status}: {said}")
    return answer_line(identity, Reply(error=why))
