"""A modern MCP server over HTTP that announces its changed tools on the client's listen stream. Its
first stream ends after a moment, as streams through proxies do."""

import json
import queue
from typing import Any

from modern import VERSION, Modern, serve

STAMP = "io.modelcontextprotocol/subscriptionId"
TOOLS = ["grow"]
STREAMS: "list[queue.Queue[str]]" = []


class Listening(Modern):
    def respond(self, body: Any) -> None:
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
            super().respond(body)

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


if __name__ == "__main__":
    serve(Listening, __doc__)
