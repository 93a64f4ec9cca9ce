"""The part of a modern MCP server over HTTP that the servers written by hand share."""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "2026-07-28"


class Modern(BaseHTTPRequestHandler):
    """Answers each posted request with JSON. A server extends `respond`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return None

    def do_POST(self) -> None:
        self.respond(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def respond(self, body: Any) -> None:
        self.answer(body, {"error": {"code": -32601, "message": "no such method"}}, 404)

    def answer(self, body: Any, outcome: dict[str, Any], status: int = 200) -> None:
        raw = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), **outcome}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def serve(handler: type[Modern], description: str | None) -> None:
    """Serve on `--port`, by default a free one, and print it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
