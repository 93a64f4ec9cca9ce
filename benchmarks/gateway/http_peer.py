"""A raw client on streamable HTTP, for protocol versions that begin with a handshake: one
connection, one request at a time.
"""

import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

LEGACY = "2025-11-25"
BOTH = "application/json, text/event-stream"


class HttpPeer:
    """Speaks to `/mcp` on a port of this machine; `token` if it requires one."""

    def __init__(self, port: int, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = {"Accept": BOTH, "Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._ids = 0

    def hello(self) -> None:
        params = {
            "protocolVersion": LEGACY,
            "capabilities": {},
            "clientInfo": {"name": "peer", "version": "1.0"},
        }
        self.result("initialize", params)
        self._headers["Mcp-Protocol-Version"] = LEGACY
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def result(self, method: str, params: Mapping[str, Any]) -> Any:
        self._ids += 1
        call = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        for message in self._post(call):
            if message.get("id") == self._ids and "result" in message:
                return message["result"]
        raise AssertionError(f"{method} was not answered")

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.result("tools/call", {"name": tool, "arguments": arguments})

    def wait_for_tool(self, tool: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while all(
            listed_tool["name"] != tool for listed_tool in self.result("tools/list", {})["tools"]
        ):
            if time.monotonic() > end:
                raise AssertionError(f"{tool} was never listed")
            time.sleep(0.1)

    def close(self) -> None:
        self._connection.close()

    def _post(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        response, body = self._sent(json.dumps(message).encode())
        if response.status >= 300:
            raise AssertionError(f"HTTP {response.status}: {body[:300]!r}")
        if session := response.getheader("mcp-session-id"):
            self._headers["Mcp-Session-Id"] = session
        if (response.getheader("content-type") or "").startswith("text/event-stream"):
            lines = [line[5:] for line in body.splitlines() if line.startswith(b"data:")]
            return [json.loads(line) for line in lines if line.strip()]
        return [json.loads(body)] if body.strip() else []

    def _sent(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer. A connection that was idle for too long is opened again."""
        for last in (False, True):
            try:
                self._connection.request("POST", "/mcp", body, self._headers)
                response = self._connection.getresponse()
                return response, response.read()
            except (ConnectionError, http.client.RemoteDisconnected):
                self._connection.close()
                if last:
                    raise
        raise AssertionError("unreachable")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_open(port: int, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
