"""The loopback port to which the browser returns after a login (RFC 8252, section 7.3)."""

import asyncio
import socket
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from upwell.ground.errors import UsageError
from upwell.ground.listener import Listener, stream_listener

PATH = "/callback"
MAX_LINES = 100
MAX_CONNECTIONS = 16
READ_SECONDS = 10.0
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>upwell</title>"
    "<p>Signed in to {server}. You can close this window."
)
_ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n%b"
)


class Callback:
    """Listens for the browser's request inside an `async with` block. `expect()` sets the OAuth
    `state` of the current login. A request with another `state` is rejected."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._state = ""
        self._server_name = ""
        self._listener: Listener | None = None
        self._response: asyncio.Future[Mapping[str, str]] | None = None

    async def __aenter__(self) -> "Callback":
        self._response = asyncio.get_running_loop().create_future()
        try:
            listening = socket.create_server(("127.0.0.1", self._port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on 127.0.0.1:{self._port}: {error.strerror}",
                hint="choose another --port",
            ) from error
        self._port = listening.getsockname()[1]
        self._listener = stream_listener(
            listening, self._serve, max_open=MAX_CONNECTIONS, name="the login"
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listener
        self._listener.close()
        await self._listener.wait_closed()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect(self, state: str, server: str) -> None:
        self._state, self._server_name = state, server

    async def answer(self) -> Mapping[str, str]:
        """Wait for the browser. Returns the query parameters of its request."""
        assert self._response
        return await self._response

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_SECONDS):
                target = await _target(reader)
                status, body = self._take(target)
                writer.write(_ANSWER % (status, len(body), body))
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[bytes, bytes]:
        parts = urlsplit(target)
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != PATH:
            return b"404 Not Found", b"not found"
        if not self._state or parameters.get("state") != self._state:
            return b"400 Bad Request", b"this login is not the one in progress"
        assert self._response
        if not self._response.done():
            self._response.set_result(parameters)
        return b"200 OK", _PAGE.format(server=_plain(self._server_name)).encode()


async def _target(reader: asyncio.StreamReader) -> str:
    method, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
    for _ in range(MAX_LINES):
        if not (await reader.readline()).strip():
            break
    if method != "GET":
        raise ValueError(method[:20])
    return rest.partition(" ")[0]


def _plain(text: str) -> str:
    return "".join(char for char in text if char.isalnum() or char in "-_")
