"""The socket of the HTTP server, and addresses as people write them."""

import asyncio
import socket

import pytest
from starlette.applications import Starlette

from upwell.ground.errors import UsageError
from upwell.web import server
from upwell.web.server import address_of, http_server, listen


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """asyncio switches Nagle's algorithm off only where the socket says that it is TCP."""
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
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "host:port", "127.0.0.1:99999", "::"])
def test_an_invalid_address_is_reported(text: str) -> None:
    with pytest.raises(UsageError):
        address_of(text)


async def test_a_silent_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection with half a head is closed as well, because connections are limited."""
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    with listen("127.0.0.1", 0) as listening:
        listening.listen()
        serving = http_server(Starlette())
        running = asyncio.create_task(serving.serve(sockets=[listening]))
        for entry in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
            read, write = await asyncio.open_connection(*listening.getsockname()[:2])
            write.write(entry)
            assert await asyncio.wait_for(read.read(), 20) == b""
            write.close()
        read, write = await asyncio.open_connection(*listening.getsockname()[:2])
        write.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(read.readline(), 20)).startswith(b"HTTP/1.1 404")
        write.close()
        serving.should_exit = True
        await running
