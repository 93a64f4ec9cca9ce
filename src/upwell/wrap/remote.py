"""A server at an address, as a program: it reads messages from stdin and writes the server's
messages to stdout. `upwell wrap --url` runs it in the place of a server.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Container

from upwell.gateway.upstreams.connection import filled_in
from upwell.ground.types.rpc import Reply
from upwell.wire.http import Address, HttpLink, open_link
from upwell.wire.lines import ByteSource, FileSink, Line, Sink, open_stdio, read_lines
from upwell.wire.peer import INTERNAL_ERROR, answer_line, error_body, read_message
from upwell.wire.rawjson import NotJson, RawArray, RawObject, one_line

FAILED = 1


def main(args: list[str]) -> int:
    """Connect stdin and stdout to the server at the address in `args`, whose other words are
    headers. `${NAME}` in a header is the value of that variable. Returns the exit status."""
    url, *lines = args
    headers = {name.strip(): value.strip() for name, _, value in (h.partition(":") for h in lines)}
    try:
        address = Address(url=url, headers=filled_in(headers, os.environ))
        reason = asyncio.run(_connect(address))
    except ValueError as error:
        reason = str(error)
    except KeyboardInterrupt:
        return 130
    if reason:
        sys.stderr.write(f"upwell: {' '.join(reason.split())}\n")
    return FAILED if reason else 0


async def _connect(address: Address) -> str:
    """Pass messages on until one side ends. Returns why the server's side has ended, or ""."""
    link, out = open_link(address), FileSink(os.dup(1))
    source, _ = await open_stdio()
    waiting: dict[bytes, str] = {}
    sending = asyncio.create_task(_send(source, link, waiting))
    receiving = asyncio.create_task(_receive(link, out, waiting))
    await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
    reason = await link.exit_reason() if receiving.done() else ""
    sending.cancel()
    await link.aclose()
    await asyncio.wait({sending, receiving})
    return reason


async def _send(source: ByteSource, link: HttpLink, waiting: dict[bytes, str]) -> None:
    """Pass on what the agent sends. `waiting` has the methods of its unanswered requests."""
    async for line in read_lines(source):
        try:
            message = RawObject.parse(line.data)
            identity, method = message.get("id"), message.value("method")
            if identity is not None and method is not None:
                waiting[identity] = str(method)
            await link.write(line.data)
        except NotJson:
            continue
        except ConnectionError:
            # The link has ended. `_receive()` ends as well, and the reason is reported there.
            await asyncio.Event().wait()


async def _receive(link: HttpLink, sink: Sink, waiting: dict[bytes, str]) -> None:
    async for line in link.lines():
        try:
            data = _message(line, waiting)
            if not data:
                continue
            with contextlib.suppress(NotJson):
                message = read_message(data)
                is_answer = message.id and message.method is None
                method = waiting.pop(message.id or b"", "") if is_answer else ""
                if method == "tools/list" and (raw := message.body.get("result")):
                    # The list says which arguments the server wants in headers (SEP-2243).
                    tools = RawArray.parse(RawObject.parse(raw).get("tools") or b"[]").items
                    link.mirrors.listed([RawObject.parse(tool) for tool in tools])
            await sink.write(data)
        except NotJson:
            continue
        except OSError:
            return


def _message(line: Line, waiting: Container[bytes]) -> bytes:
    """Return the message in a line, or the error that answers a lost request, or b"" if that was
    answered."""
    if line.lost:
        lost = answer_line(line.lost, Reply(error=error_body(INTERNAL_ERROR, line.reason)))
        return lost if line.lost in waiting else b""
    if line.oversize:
        reason = f"the answer is too large: {line.oversize:,} bytes"
        identity = line.data.removeprefix(b'{"id":')
        return answer_line(identity, Reply(error=error_body(INTERNAL_ERROR, reason)))
    return one_line(line.data)
