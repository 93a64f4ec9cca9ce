"""Where a browser comes back to after a login: one port of loopback, as long as the login takes
(RFC 8252, section 7.3)."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from upwell.ground.errors import UsageError

PATH = "/callback"
MOST_LINES = 100
READ_SECONDS = 10.0
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>upwell</title>"
    "<p>upwell has heard from {server}. You can close this window."
)
_ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n%b"
)


class Callback:
    """Listens while it is entered. `expect` names the state of the login under way: what comes with
    another one is somebody else's, and is refused."""

    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._state = ""
        self._where = ""
        self._server: asyncio.Server | None = None
        self._came: asyncio.Future[Mapping[str, str]] | None = None

    async def __aenter__(self) -> "Callback":
        self._came = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        except OSError as error:
            raise UsageError(
                f"cannot listen on 127.0.0.1:{self._port}: {error.strerror}",
                hint="choose another --port",
            ) from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server
        self._server.close()
        await self._server.wait_closed()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect(self, state: str, where: str) -> None:
        self._state, self._where = state, where

    async def answer(self) -> Mapping[str, str]:
        """The parameters with which the browser came back."""
        assert self._came
        return await self._came

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
        given = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != PATH:
            return b"404 Not Found", b"nothing is here"
        if not self._state or given.get("state") != self._state:
            return b"400 Bad Request", b"this is not the login that upwell waits for"
        assert self._came
        if not self._came.done():
            self._came.set_result(given)
        return b"200 OK", _PAGE.format(server=_harmless(self._where)).encode()


async def _target(reader: asyncio.StreamReader) -> str:
    """What a GET asks for.

    Raises:
        ValueError: it is no such request.
    """
    method, _, rest = (await reader.readline()).decode("latin-1").partition(" ")
    for _ in range(MOST_LINES):
        if not (await reader.readline()).strip():
            break
    if method != "GET":
        raise ValueError(method[:20])
    return rest.partition(" ")[0]


def _harmless(text: str) -> str:
    return "".join(one for one in text if one.isalnum() or one in "-_")
