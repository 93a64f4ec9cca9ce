"""The MCP server of the demo, which serves the files of a small shop over stdio. It needs only the
standard library.

python -m upwell.demo.server [FOLDER]
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = Path(__file__).parent / "files"
_TEXT = {"type": "string"}


class CallFailed(Exception):
    """There is no such tool or file."""


def inside(root: Path, path: str) -> Path:
    """Return the file at `path` below `root`.

    Raises:
        CallFailed: there is no such file, or it is not below `root`.
    """
    file = (root / path).resolve()
    if not file.is_relative_to(root.resolve()) or not file.is_file():
        raise CallFailed(f"no file {path!r}")
    return file


def read_file(root: Path, args: dict[str, Any]) -> str:
    return inside(root, str(args.get("path", ""))).read_text(encoding="utf-8")


def list_files(root: Path, args: dict[str, Any]) -> str:
    files = (path for path in root.rglob("*") if path.is_file())
    return "\n".join(sorted(str(path.relative_to(root)) for path in files))


def write_note(root: Path, args: dict[str, Any]) -> str:
    with open(root / "NOTES.md", "a", encoding="utf-8") as notes:
        notes.write(f"- {args.get('text', '')}\n")
    return "noted"


TOOLS: dict[str, tuple[str, dict[str, Any], bool, Callable[[Path, dict[str, Any]], str]]] = {
    "list_files": ("The files of the shop.", {}, True, list_files),
    "read_file": ("The text of a file.", {"path": _TEXT}, True, read_file),
    "write_note": ("Add a line to NOTES.md.", {"text": _TEXT}, False, write_note),
}


def listed() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "description": description,
            "inputSchema": {"type": "object", "properties": fields, "required": list(fields)},
            "annotations": {"readOnlyHint": read_only},
        }
        for name, (description, fields, read_only, _) in TOOLS.items()
    ]


def call(root: Path, params: dict[str, Any]) -> dict[str, Any]:
    tool = TOOLS.get(params.get("name", ""))
    try:
        if tool is None:
            raise CallFailed(f"no tool {params.get('name')!r}")
        text = tool[3](root, params.get("arguments") or {})
    except (CallFailed, OSError) as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    return {"content": [{"type": "text", "text": text}]}


def answer(root: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Return the `result` or `error` member of the reply to a request."""
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        info = {"name": "upwell-demo-shop", "version": "1"}
        version = params.get("protocolVersion", "2025-11-25")
        return {
            "result": {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
        }
    if method == "tools/list":
        return {"result": {"tools": listed()}}
    if method == "tools/call":
        return {"result": call(root, params)}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": f"no method {method}"}}


def main(root: Path) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], **answer(root, request)}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILES)
