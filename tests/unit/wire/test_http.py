"""A server on HTTP gets the configured headers, and messages about it contain no key."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from upwell.wire.http import Address, open_link

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}'


class Sticky(BaseHTTPRequestHandler):
    """Sends a cookie with every answer, and records the requests."""

    seen: list[str | None]

    def do_POST(self) -> None:
        self.seen.append(self.headers.get("cookie"))
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", "track=1; Path=/")
        self.send_header("content-length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def do_GET(self) -> None:
        self.send_error(401)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Sticky.seen = []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Sticky)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


async def test_cookies_are_not_stored(server: ThreadingHTTPServer) -> None:
    link = open_link(Address(url=f"http://127.0.0.1:{server.server_port}/mcp"))
    for sent in (1, 2):
        await link.write(b'{"jsonrpc":"2.0","id":%d,"method":"initialize"}' % sent)
        async with asyncio.timeout(30):
            while link._posts:
                await asyncio.sleep(0.01)
    assert Sticky.seen == [None, None]
    await link.stop()


@pytest.mark.parametrize("sse", [True, False])
async def test_an_unreachable_server_is_reported_without_its_key(
    server: ThreadingHTTPServer, sse: bool
) -> None:
    port = server.server_port if sse else 9
    link = open_link(Address(url=f"http://u:s3cret@127.0.0.1:{port}/mcp?key=s3cret", sse=sse))
    lines = link.lines()
    await link.write(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
    async for _ in lines:
        pass
    reply = await link.exit_reason()
    assert f"127.0.0.1:{port}/mcp?key=***" in reply
    assert "s3cret" not in reply
    await link.stop()
