"""A modern MCP server over HTTP, written by hand, whose tools require arguments in headers. It
refuses calls whose headers differ from their arguments, by the rules of the official SDK."""

import json
from typing import Any

from mcp.shared.inbound import validate_mcp_param_headers
from modern import VERSION, Modern, serve

LISTED = {"times": 0}


def argument(kind: str, header: str) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def tools() -> dict[str, dict[str, Any]]:
    """`changed` declares its header only from the second list on, but `call` always checks it."""
    late = argument("string", "Late") if LISTED["times"] > 1 else {"type": "string"}
    position = {"type": "object", "properties": {"zone": argument("integer", "Zone")}}
    return {
        "where": schema(region=argument("string", "Region"), place=position),
        "bad": schema(ratio=argument("number", "Ratio")),
        "changed": schema(late=late),
    }


class Mirror(Modern):
    def respond(self, body: Any) -> None:
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
            super().respond(body)

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


if __name__ == "__main__":
    serve(Mirror, __doc__)
