"""A modern MCP server over HTTP that announces its changed tools on the client's listen stream. Its
first stream ends after a moment, as streams through proxies do."""

import argparse
import json
import queue
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "2026-07-28"
STAMP = "io.modelcontextprotocol/subscriptionId"
TOOLS = ["grow"]
STREAMS: "list[queue.Queue[str]]" = []


class Listening(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = body.get("method")
        if method == "server/discover":
            capabilities = {"tools": {"listChanged": True}}
            offered = {"supportedVersions": [VERSION], "capabilities": capabilities}
            self.answer(body, {"result": {**offered, "instructions": "Water the garden."}})
        elif method == "tools/list":
            listed = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
            self.answer(body, {"result": {"tools": listed, "ttlMs": 0, "cacheScope": "private"}})
        elif method == "tools/call":
            TOOLS.append(f"tool{len(TOOLS)}")
            for stream in STREAMS:
                stream.put("notifications/tools/list_changed")
            self.answer(body, {"result": {"content": [{"type": "text", "text": TOOLS[-1]}]}})
        elif method == "subscriptions/listen":
            self.listen(body)
        else:
            self.answer(body, {"error": {"code": -32601, "message": "no such method"}}, 404)

    def listen(self, body: Any) -> None:
        stream: queue.Queue[str] = queue.Queue()
        is_first = not STREAMS
        STREAMS.append(stream)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.event(body, "notifications/subscriptions/acknowledged", body["params"])
        if is_first:
            self.close_connection = True
            return
        while True:
            self.event(body, stream.get(), {})

    def event(self, body: Any, method: str, params: Any) -> None:
        stamped = {**params, "_meta": {STAMP: body["id"]}}
        message = json.dumps({"jsonrpc": "2.0", "method": method, "params": stamped})
        self.wfile.write(f"event: message\ndata: {message}\n\n".encode())
        self.wfile.flush()

    def answer(self, body: Any, outcome: dict[str, Any], status: int = 200) -> None:
        raw = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), **outcome}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Listening)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
