"""A server that says the content of a file, in every place where a server can say something: a
result, structured content, an error, a log message, on stderr, and as its last words."""

import json
import os
import sys
from pathlib import Path
from typing import Any

TOOLS = [
    {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    for name in ("say", "structured", "fail", "log", "stderr", "die", "echo")
]


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"result": {}}
        if method == "initialize":
            about = {"name": "quoting", "version": "1"}
            offered = {"tools": {}, "logging": {}}
            version = params["protocolVersion"]
            answer["result"] = {
                "protocolVersion": version,
                "capabilities": offered,
                "serverInfo": about,
            }
        elif method == "tools/list":
            answer["result"] = {"tools": TOOLS}
        elif method == "tools/call":
            answer = called(params["name"], params.get("arguments") or {})
        write({"id": message["id"], **answer})


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "echo":
        return said(json.dumps(arguments))
    text = Path(arguments["file"]).read_text()
    if name == "say":
        return said(text)
    if name == "structured":
        rows = [{"n": n, "value": row} for n, row in enumerate(text.split("\n\n"))]
        return {"result": {**said(json.dumps(rows))["result"], "structuredContent": {"rows": rows}}}
    if name == "fail":
        return {"error": {"code": -32000, "message": text[:2000], "data": {"text": text}}}
    if name == "log":
        note = {"level": "error", "data": text}
        write({"method": "notifications/message", "params": note})
    else:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    if name == "die":
        os._exit(3)
    return said("done")


def said(text: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}]}}


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
