"""The socket of the HTTP server, and addresses as people write them."""

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from upwell.ground.errors import UsageError
from upwell.ground.types.rpc import IN_SCOPE, OWNER
from upwell.web import server
from upwell.web.server import (
    MAX_CONNECTIONS,
    MAX_STRANGERS,
    address_of,
    http_server,
    listen,
)


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """asyncio switches off Nagle's algorithm only if the socket names TCP as its protocol."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_reported() -> None:
    with listen("127.0.0.1", 0) as listening:
        listening.listen()
        with pytest.raises(UsageError, match="cannot listen"):
            listen("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:8765", ("::1", 8765)),
        (":8765", ("127.0.0.1", 8765)),
        ("8765", ("127.0.0.1", 8765)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "host:port", "127.0.0.1:99999", "::"])
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(UsageError):
        address_of(text)


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[tuple[str, int]]:
    with listen("127.0.0.1", 0) as listening:
        listening.listen()
        http = http_server(app)
        running = asyncio.create_task(http.serve(sockets=[listening]))
        yield listening.getsockname()[:2]
        http.should_exit = True
        await running


async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that recognises a client with a token, as the guard does."""
    if scope["type"] == "http":
        if any(name == b"authorization" for name, _ in scope["headers"]):
            scope[IN_SCOPE] = OWNER
        await PlainTextResponse("ok")(scope, receive, send)


HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"


async def ask(read: asyncio.StreamReader, write: asyncio.StreamWriter, head: bytes) -> bytes:
    write.write(head + b"\r\n")
    status = await asyncio.wait_for(read.readline(), 20)
    await asyncio.wait_for(read.readuntil(b"ok"), 20)
    return status


async def test_strangers_take_no_places_from_those_with_a_token() -> None:
    async with serving(guarded) as address:
        read, write = await asyncio.open_connection(*address)
        assert b"200" in await ask(read, write, HEAD + b"Authorization: x\r\n")
        strangers = []
        for _ in range(MAX_CONNECTIONS + MAX_STRANGERS):
            stranger = await asyncio.open_connection(*address)
            await ask(*stranger, HEAD)
            stranger[1].write(b"GET / HTTP/1.1\r\nX: ")
            strangers.append(stranger)
        assert b"200" in await ask(read, write, HEAD + b"Authorization: x\r\n")
        newcomer = await asyncio.open_connection(*address)
        assert b"200" in await ask(*newcomer, HEAD + b"Authorization: x\r\n")
        open_ones = [s for s in strangers if not s[0].at_eof() and s[0].exception() is None]
        assert len(open_ones) <= MAX_STRANGERS
        for _, writer in [*strangers, newcomer, (read, write)]:
            writer.close()


async def test_the_head_of_a_later_request_has_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    async with serving(guarded) as address:
        read, write = await asyncio.open_connection(*address)
        assert b"200" in await ask(read, write, HEAD)
        began = time.monotonic()
        write.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(20):
            await asyncio.sleep(0.05)
            write.write(b"a")
        with suppress(ConnectionError):
            assert await asyncio.wait_for(read.read(), 20) == b""
        assert time.monotonic() - began < 10


def test_the_same_warning_is_logged_once_a_minute() -> None:
    seldom = server.Seldom()
    record = logging.LogRecord("x", logging.WARNING, "", 0, "Invalid HTTP request", None, None)
    assert [seldom.filter(record) for _ in range(3)] == [True, False, False]


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with half a head is closed as well, because connections are limited."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    async with serving(Starlette()) as address:
        for entry in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
            read, write = await asyncio.open_connection(*address)
            write.write(entry)
            assert await asyncio.wait_for(read.read(), 20) == b""
            write.close()
        read, write = await asyncio.open_connection(*address)
        write.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(read.readline(), 20)).startswith(b"HTTP/1.1 404")
        write.close()
