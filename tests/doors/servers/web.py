"""A handshake-era MCP server over HTTP, written by hand. It reports the headers of each request,
and can forget sessions, answer with events, break a stream and resume it, and send too much."""

import argparse
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SESSIONS: set[str] = set()
LATE: dict[str, bytes] = {}
HUGE = 70_000_000
TOOLS = ["headers", "events", "broken", "forget", "huge", "huge_event", "refuse", "exact", "echo"]
POLITE = (
    400,
    b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID '
    b'provided"},"id":null}',
)
"""The answer of the reference servers to an unknown session; the specification asks for 404."""
READ_ONLY: tuple[str, ...] = ("echo", "forget")


def message(identity: Any, result: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":{json.dumps(identity)},"result":{result}}}'.encode()


def said(value: str) -> str:
    return json.dumps({"content": [{"type": "text", "text": value}]})


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    """Fifty clients may connect at once; with the default of five, some would be turned away."""


class Web(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return None

    def send(
        self, status: int, body: bytes = b"", kind: str = "application/json", **more: str
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_DELETE(self) -> None:
        SESSIONS.discard(self.headers.get("mcp-session-id", ""))
        self.send(200)

    def do_GET(self) -> None:
        last = self.headers.get("last-event-id", "")
        if last in LATE:
            self.send(200, LATE.pop(last), "text/event-stream")
        else:
            self.send(405)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, identity = body.get("method"), body.get("id")
        if method == "initialize":
            name = f"session-{time.monotonic_ns()}"
            SESSIONS.add(name)
            result = (
                '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
                '"serverInfo":{"name":"web","version":"1"}}'
            )
            self.send(200, message(identity, result), mcp_session_id=name)
        elif self.headers.get("mcp-session-id") not in SESSIONS:
            self.send(404)
        elif identity is None:
            self.send(202)
        elif method == "tools/list":
            tools = [
                {
                    "name": name,
                    "inputSchema": {"type": "object"},
                    "annotations": {"readOnlyHint": name in READ_ONLY},
                }
                for name in TOOLS
            ]
            self.send(200, message(identity, json.dumps({"tools": tools})))
        else:
            self.call(identity, body["params"])

    def call(self, identity: Any, params: Any) -> None:
        name = params["name"]
        if name == "headers":
            self.send(200, message(identity, said(json.dumps(dict(self.headers)))))
        elif name == "echo":
            self.send(200, message(identity, said(str(params["arguments"].get("text")))))
        elif name == "exact":
            self.send(200, message(identity, '{"content":[],"x":1.10,"y":1E400,"z":[1.0]}'))
        elif name == "events":
            params = '{"level":"info","data":1.10}'
            note = f'{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}'
            body = f": hello\r\n\r\nevent: message\r\ndata: {note}\r\n\r\n".encode()
            answer = message(identity, said("by event"))
            self.send(200, body + b"data: " + answer + b"\n\n", "text/event-stream")
        elif name == "broken":
            LATE["e1"] = b"data: " + message(identity, said("in the end")) + b"\n\n"
            self.send(200, b"id: e1\nretry: 50\ndata:\n\n", "text/event-stream")
        elif name == "forget":
            again = len(SESSIONS) > 1 or params["arguments"].get("done") == len(SESSIONS)
            if again:
                self.send(200, message(identity, said("known again")))
            else:
                SESSIONS.clear()
                SESSIONS.add("somebody-else")
                self.send(*POLITE if params["arguments"].get("politely") else (404,))
        elif name == "huge":
            self.send(200, message(identity, said("h" * HUGE)))
        elif name == "huge_event":
            body = b"data: " + message(identity, said("h" * HUGE)) + b"\n\n"
            self.send(200, body, "text/event-stream")
        else:
            self.send(503, b"<h1>out to lunch</h1>", "text/html")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = Server(("127.0.0.1", parser.parse_args().port), Web)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
