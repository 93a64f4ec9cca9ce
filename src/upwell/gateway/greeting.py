"""The first words: `initialize` is answered before anything else is loaded or opened, since the
agent waits for nothing longer than for this."""

from collections.abc import AsyncIterator
from typing import Any

from upwell.gateway.eras import IMPLEMENTATION, capabilities, negotiated
from upwell.ground.errors import UpwellError
from upwell.ground.types import Reply
from upwell.wire.lines import Line, Sink
from upwell.wire.peer import INTERNAL_ERROR, Message, answer_line, error_body, read_message
from upwell.wire.rawjson import NotJson, RawObject, dumps

INSTRUCTIONS = (
    "Tools of several servers, each named server__tool. Long results are shortened to fit; their "
    "notice names a key, and upwell__read_more(key, offset) gives the rest. "
    "Blocks marked upwell-memories are notes from earlier work."
)


def handshake(message: Message) -> dict[str, Any]:
    """The result of `initialize`.

    Raises:
        NotJson: its params cannot be read.
    """
    asked = RawObject.parse(message.params).value("protocolVersion")
    return {
        "protocolVersion": negotiated(asked),
        "capabilities": capabilities(),
        "serverInfo": IMPLEMENTATION,
        "instructions": INSTRUCTIONS,
    }


async def greeted(lines: AsyncIterator[Line], sink: Sink) -> AsyncIterator[Line]:
    """`lines` without the `initialize` that they begin with: it is answered here."""
    first = await anext(lines, None)
    if first is None or await _answered(first, sink):
        return lines
    return _again(first, lines)


async def refused(lines: AsyncIterator[Line], sink: Sink, error: UpwellError) -> None:
    """Answer every request with `error`, until the agent closes its side: a gateway that cannot
    start tells its agent why."""
    reply = Reply(error=error_body(INTERNAL_ERROR, str(error)))
    async for line in lines:
        try:
            message = read_message(line.data)
        except NotJson:
            continue
        if message.method is not None and message.id is not None:
            await sink.write(answer_line(message.id, reply))


async def _answered(line: Line, sink: Sink) -> bool:
    try:
        message = read_message(line.data)
        if message.method != "initialize" or message.id is None or line.oversize:
            return False
        result = dumps(handshake(message))
    except NotJson:
        return False
    await sink.write(answer_line(message.id, Reply(result=result)))
    return True


async def _again(first: Line, lines: AsyncIterator[Line]) -> AsyncIterator[Line]:
    yield first
    async for line in lines:
        yield line
