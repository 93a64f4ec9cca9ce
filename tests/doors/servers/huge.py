"""A server with one tool for each kind of huge result. A result has about ten million characters,
except that of `small`."""

import argparse
import json
import random
import sys
from typing import Any

CHARS = 10_000_000
ROW = {"id": 7919, "name": "lantern", "tags": ["brass", "port"], "note": 'hangs "low" at night'}


def result(kind: str) -> dict[str, Any]:
    if kind == "log":
        line = "12:04:11 INFO the ferry of {} arrived at berth {}\n"
        rows = (line.format(number, number * 7919 % 97) for number in range(CHARS // 45))
        return {"content": [{"type": "text", "text": "".join(rows)}]}
    if kind == "json":
        rows_of_json = json.dumps([{**ROW, "id": number} for number in range(CHARS // 100)])
        return {"content": [{"type": "text", "text": rows_of_json}]}
    if kind == "structured":
        return {"content": [], "structuredContent": {"rows": [ROW] * (CHARS // 100)}}
    if kind == "blocks":
        return {"content": [{"type": "text", "text": "a block of text " * 625}] * (CHARS // 10_000)}
    if kind == "token":
        return {"content": [{"type": "text", "text": "x" * CHARS}]}
    if kind == "secret":
        noise = random.Random(7).randbytes(CHARS // 2).hex()
        rows = (noise[at : at + 80] for at in range(0, CHARS, 80))
        return {"content": [{"type": "text", "text": f"ghp_{'aB3d' * 9}\n" + "\n".join(rows)}]}
    return {"content": [{"type": "text", "text": "small"}]}


KINDS = ("log", "json", "structured", "blocks", "token", "secret", "small")


def answer(message: dict[str, Any], results: dict[str, str]) -> str:
    method, identity = message["method"], json.dumps(message["id"])
    if method == "initialize":
        about = {"serverInfo": {"name": "huge", "version": "1"}, "capabilities": {"tools": {}}}
        found = json.dumps({"protocolVersion": "2025-06-18", **about})
    elif method == "tools/list":
        tools = [{"name": kind, "inputSchema": {"type": "object"}} for kind in KINDS]
        found = json.dumps({"tools": tools})
    elif method == "tools/call":
        found = results[message["params"]["name"]]
    else:
        return f'{{"jsonrpc":"2.0","id":{identity},"error":{{"code":-32601,"message":"no"}}}}'
    return f'{{"jsonrpc":"2.0","id":{identity},"result":{found}}}'


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    results = {kind: json.dumps(result(kind)) for kind in KINDS}
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.write(answer(message, results) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
