"""The socket of the HTTP server, and addresses as people write them."""

import socket

import pytest

from upwell.ground.errors import UsageError
from upwell.web.server import address_of, listen


def test_answers_do_not_wait_for_an_acknowledgement() -> None:
    """asyncio switches Nagle's algorithm off only where the socket says that it is TCP."""
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_port_that_is_taken_is_told() -> None:
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
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(UsageError):
        address_of(text)
