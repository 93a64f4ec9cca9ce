"""A modern MCP server over HTTP, written by hand, whose tools require arguments in headers. It
refuses calls whose headers differ, by the rules of the official SDK."""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mcp.shared.inbound import validate_mcp_param_headers

VERSION = "2026-07-28"
LISTED = {"times": 0}


def argument(kind: str, header: str) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def tools() -> dict[str, dict[str, Any]]:
    """`changed` requires its header from the second list on."""
    late = argument("string", "Late") if LISTED["times"] > 1 else {"type": "string"}
    position = {"type": "object", "properties": {"zone": argument("integer", "Zone")}}
    return {
        "where": schema(region=argument("string", "Region"), place=position),
        "bad": schema(ratio=argument("number", "Ratio")),
        "changed": schema(late=late),
    }


class Mirror(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = body.get("method"), body.get("params", {})
        if method == "server/discover":
            offered = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
            self.answer(body, {"result": offered})
        elif method == "tools/list":
            LISTED["times"] += 1
            listed = [{"name": name, "inputSchema": schema} for name, schema in tools().items()]
            self.answer(body, {"result": {"tools": listed, "ttlMs": 0, "cacheScope": "private"}})
        elif method == "tools/call":
            self.call(body, params)
        else:
            self.answer(body, {"error": {"code": -32601, "message": "no such method"}}, 404)

    def call(self, body: Any, params: Any) -> None:
        name, arguments = params["name"], params.get("arguments", {})
        expected = schema(late=argument("string", "Late")) if name == "changed" else tools()[name]
        refusal = validate_mcp_param_headers(expected, arguments, dict(self.headers))
        if refusal is not None:
            error = {"code": refusal.code, "message": refusal.message}
            self.answer(body, {"error": error}, 400)
            return
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.answer(body, {"result": {"content": [{"type": "text", "text": json.dumps(headers)}]}})

    def answer(self, body: Any, payload: dict[str, Any], status: int = 200) -> None:
        raw = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), **payload}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Mirror)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
