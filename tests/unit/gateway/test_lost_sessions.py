"""A server over HTTP that loses our session, or redirects: calls that certainly did not run are
repeated in a new session, and no other call is."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from upwell.gateway.clients import NOBODY, Audience
from upwell.gateway.options import GatewayOptions, ServerOptions
from upwell.gateway.upstreams.connection import connect
from upwell.gateway.upstreams.supervisor import Upstream
from upwell.ground.errors import UpstreamError, UpstreamUnavailable
from upwell.wire.rawjson import RawObject, loads

OPTIONS = GatewayOptions(connect_timeout_seconds=20, call_timeout_seconds=20)
CALL = RawObject.parse(b'{"name":"x"}')


class Web(BaseHTTPRequestHandler):
    """Counts the calls that it runs. `lost` answers requests of an unknown session, and
    `redirects` maps a path to the target and status of a redirect."""

    sessions: set[str]
    lost: tuple[int, str]
    redirects: dict[str, tuple[int, str]]
    calls: int
    opened: int

    def do_POST(self) -> None:
        web = type(self)
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session, method = self.headers.get("mcp-session-id"), message["method"]
        if self.path in web.redirects:
            status, target = web.redirects[self.path]
            return self.send(status, "", location=target)
        if method == "initialize":
            web.opened += 1
            web.sessions.add(f"s{web.opened}")
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            return self.answer(message, result, **{"mcp-session-id": f"s{web.opened}"})
        if session not in web.sessions:
            status, body = web.lost
            return self.send(status, body)
        if "id" not in message:
            return self.send(202, "")
        if method == "tools/call":
            web.calls += 1
            return self.answer(message, {"content": [], "calls": web.calls})
        return self.answer(message, {"tools": []} if method == "tools/list" else {})

    def do_GET(self) -> None:
        self.send(405, "")

    do_DELETE = do_GET

    def answer(self, message: dict[str, object], result: object, **headers: str) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result})
        self.send(200, body, **headers)

    def send(self, status: int, body: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        return None


@asynccontextmanager
async def running(path: str = "/mcp") -> AsyncIterator[tuple[Upstream, type[Web]]]:
    web = type("OneWeb", (Web,), {"sessions": set(), "redirects": {}, "calls": 0, "opened": 0})
    http = ThreadingHTTPServer(("127.0.0.1", 0), web)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    server = ServerOptions(name="s", url=f"http://127.0.0.1:{http.server_port}{path}")

    async def ignored(_: Upstream) -> None:
        return None

    upstream = Upstream(server, OPTIONS, partial(connect, environment={}), ignored, Audience())
    run = asyncio.create_task(upstream.run())
    try:
        yield upstream, web
    finally:
        run.cancel()
        await asyncio.wait({run})
        http.shutdown()
        http.server_close()


LOST = {
    "not found": (404, ""),
    "python": (404, '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"x"}}'),
    "typescript": (
        400,
        '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},'
        '"id":null}',
    ),
    "text": (400, "Invalid session ID"),
    "flat": (400, '{"error":"No valid session ID provided"}'),
    "unavailable": (503, '{"error":"session expired"}'),
}


@pytest.mark.parametrize("how", LOST)
async def test_a_lost_session_is_opened_anew_and_the_call_repeated(how: str) -> None:
    async with running() as (upstream, web):
        web.lost = LOST[how]
        await upstream.call("tools/call", CALL)
        web.sessions.clear()
        reply = await upstream.call("tools/call", CALL)
        assert loads(reply.result)["calls"] == 2
        assert web.opened == 2
        web.sessions.clear()
        assert await upstream.every("tools/list", "tools", NOBODY) == ()


async def test_a_call_that_may_have_run_is_repeated_only_if_it_changes_nothing() -> None:
    async with running() as (upstream, web):
        web.lost = (503, "no healthy backend")
        await upstream.call("tools/call", CALL)
        web.sessions.clear()
        with pytest.raises(UpstreamUnavailable, match="503"):
            await upstream.call("tools/call", CALL)
        reply = await upstream.call("tools/call", CALL, idempotent=True)
        assert loads(reply.result)["calls"] == 2


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_within_the_origin_is_followed(status: int) -> None:
    async with running("/mcp/") as (upstream, web):
        web.redirects["/mcp/"] = (status, "/mcp")
        assert (await upstream.call("tools/call", CALL)).result


@pytest.mark.parametrize("target", ["https://u:secret@other.example/mcp", "/mcp/"])
async def test_any_other_redirect_is_named(target: str) -> None:
    async with running("/mcp/") as (upstream, web):
        web.redirects["/mcp/"] = (307, target)
        with pytest.raises(UpstreamError, match="redirects") as raised:
            await upstream.call("tools/call", CALL)
        assert "secret" not in str(raised.value)
        if target.startswith("https"):
            assert "other.example/mcp: set this as its url" in str(raised.value)
