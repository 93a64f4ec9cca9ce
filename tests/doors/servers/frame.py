"""The frame of the test upstreams: MCP over stdio by hand, so that every byte can be chosen.

Stdlib only, no SDK. Tools return raw JSON; each call runs in a thread of its own, so a hanging call
delays no other. `--log FILE` keeps every line received, for the tests to read.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"


class RpcError(Exception):
    """Answer with this JSON-RPC error, as raw JSON."""

    def __init__(self, raw: str) -> None:
        super().__init__(raw)
        self.raw = raw


@dataclass(frozen=True)
class Call:
    """One incoming `tools/call`."""

    server: "Server"
    id: Any
    name: str
    params: Mapping[str, Any]
    line: bytes

    @property
    def args(self) -> Mapping[str, Any]:
        result = self.params.get("arguments") or {}
        if not isinstance(result, dict):
            raise RpcError('{"code":-32602,"message":"arguments must be an object"}')
        return result


@dataclass(frozen=True)
class Tool:
    """`declaration` is raw JSON. `run` returns the raw JSON of the result, or None if it wrote its
    answer itself."""

    name: str
    declaration: str
    run: Callable[[Call], str | None]


def declare(name: str, *, properties: str = "{}", rest: str = "") -> str:
    """A minimal declaration of a tool. `rest` is raw JSON that begins with a comma."""
    schema = f'{{"type":"object","properties":{properties}}}'
    return f'{{"name":"{name}","description":"{name}","inputSchema":{schema}{rest}}}'


def text(value: str) -> str:
    """A result of one text block."""
    return json.dumps({"content": [{"type": "text", "text": value}]}, ensure_ascii=False)


def raw_text(literal: str) -> str:
    """A result of one text block, given as a raw JSON string literal."""
    return f'{{"content":[{{"type":"text","text":{literal}}}]}}'


class Server:
    """Reads requests line by line and answers each, in one era or in both."""

    def __init__(self, tools: list[Tool], options: argparse.Namespace) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.options = options
        self.lock = threading.Lock()
        self.era = ""
        self.answers: dict[str, threading.Event] = {}

    # -- writing

    def write(self, data: bytes) -> None:
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, raw: str) -> None:
        self.write(raw.encode("utf-8", "surrogatepass") + b"\n")

    def reply(self, id: Any, result: str) -> None:
        self.send(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"result":{result}}}')

    def refuse(self, id: Any, error: str) -> None:
        self.send(f'{{"jsonrpc":"2.0","id":{json.dumps(id)},"error":{error}}}')

    def notify(self, method: str, params: str = "{}") -> None:
        self.send(f'{{"jsonrpc":"2.0","method":"{method}","params":{params}}}')

    def ask(self, id: str, method: str, deadline: float) -> bool:
        """Send a request to the client. True if it was answered in time."""
        self.expect(id)
        self.send(f'{{"jsonrpc":"2.0","id":"{id}","method":"{method}"}}')
        return self.answers[id].wait(deadline)

    def expect(self, id: str) -> None:
        """Get ready for the answer to one of the server's own requests."""
        self.answers[id] = threading.Event()

    # -- reading

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            if self.options.log:
                with Path(self.options.log).open("ab") as log:
                    log.write(line)
            message = json.loads(line)
            if "method" not in message:
                waiting = self.answers.get(str(message.get("id")))
                if waiting:
                    waiting.set()
            elif "id" in message:
                self.take(message, line)

    def take(self, message: Mapping[str, Any], line: bytes) -> None:
        id, method = message["id"], message["method"]
        params = message.get("params") or {}
        try:
            if method == "tools/call":
                self.check_era(params)
                call = Call(self, id, params.get("name", ""), params, line)
                threading.Thread(target=self.run, args=(call,), daemon=True).start()
                return
            self.reply(id, self.answer(method, params))
        except RpcError as error:
            self.refuse(id, error.raw)

    def answer(self, method: str, params: Mapping[str, Any]) -> str:
        if method == "initialize":
            return self.initialize(params)
        if method == "server/discover":
            return self.discover(params)
        self.check_era(params)
        if method == "ping" and self.era == LEGACY:
            return "{}"
        if method == "tools/list":
            return self.list_tools(params.get("cursor"))
        raise RpcError('{"code":-32601,"message":"Method not found"}')

    def initialize(self, params: Mapping[str, Any]) -> str:
        if self.options.era == "modern":
            data = f'{{"supported":["{MODERN}"],"requested":"{params.get("protocolVersion")}"}}'
            raise RpcError(f'{{"code":-32022,"message":"no initialize here","data":{data}}}')
        self.era = LEGACY
        info = f'{{"name":"{self.options.name}","version":"1.0"}}'
        capabilities = '{"tools":{"listChanged":true}}'
        return (
            f'{{"protocolVersion":"{self.options.protocol}","capabilities":{capabilities},'
            f'"serverInfo":{info},'
            f'"instructions":"Instructions of {self.options.name}."}}'
        )

    def discover(self, params: Mapping[str, Any]) -> str:
        if self.options.era == "legacy" or self.era == LEGACY:
            raise RpcError('{"code":-32601,"message":"Method not found"}')
        self.era = MODERN
        self.check_era(params)
        return self.modern(
            f'{{"supportedVersions":["{MODERN}"],"capabilities":{{"tools":{{}}}},"ttlMs":0,'
            f'"cacheScope":"private","instructions":"Instructions of {self.options.name}."}}'
        )

    def check_era(self, params: Mapping[str, Any]) -> None:
        """Each era refuses the messages of the other, as the official servers do."""
        version = (params.get("_meta") or {}).get(VERSION_KEY)
        if not self.era:
            if version == MODERN and self.options.era != "legacy":
                self.era = MODERN
            else:
                raise RpcError('{"code":-32600,"message":"not initialized"}')
        if self.era == MODERN and version != MODERN:
            raise RpcError('{"code":-32602,"message":"the request has no protocol version"}')
        if self.era == LEGACY and version is not None:
            raise RpcError('{"code":-32600,"message":"this connection is of the handshake era"}')

    def modern(self, result: str) -> str:
        """Add the fields of every modern result."""
        if self.era != MODERN or not result.startswith("{") or '"resultType"' in result:
            return result
        tail = "," if len(result.strip()) > 2 else ""
        stamp = f'"{SERVER_KEY}":{{"name":"{self.options.name}","version":"1.0"}}'
        if '"_meta":{' in result:
            return '{"resultType":"complete",' + result[1:]
        return f'{{"resultType":"complete","_meta":{{{stamp}}}{tail}{result[1:]}'

    def list_tools(self, cursor: str | None) -> str:
        declarations = [tool.declaration for tool in self.tools.values()]
        page = self.options.page or len(declarations)
        start = int(cursor.removeprefix("after-")) if cursor else 0
        chunk = declarations[start : start + page]
        more = f',"nextCursor":"after-{start + page}"' if start + page < len(declarations) else ""
        caching = ',"ttlMs":0,"cacheScope":"private"' if self.era == MODERN else ""
        return self.modern(f'{{"tools":[{",".join(chunk)}]{more}{caching}}}')

    def run(self, call: Call) -> None:
        tool = self.tools.get(call.name)
        try:
            if tool is None:
                unknown = json.dumps(f"Unknown tool: {call.name}")
                raise RpcError(f'{{"code":-32602,"message":{unknown}}}')
            result = tool.run(call)
        except RpcError as error:
            self.refuse(call.id, error.raw)
            return
        if result is not None:
            self.reply(call.id, self.modern(result))


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--name", default="upstream")
    parser.add_argument("--era", choices=["legacy", "modern", "both"], default="both")
    parser.add_argument("--protocol", default=LEGACY, help="the version of the handshake era")
    parser.add_argument("--log", help="append every line received to this file")
    parser.add_argument("--pids", help="append the process id to this file at the start")
    parser.add_argument("--state", help="folder for what tools write")
    parser.add_argument("--page", type=int, default=0, help="tools per page of tools/list")
    return parser


def note_pid(arguments: argparse.Namespace) -> int:
    """Record this start. Returns the number of earlier ones."""
    if not arguments.pids:
        return 0
    path = Path(arguments.pids)
    before = len(path.read_text().split()) if path.exists() else 0
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    return before


def pause(seconds: float) -> None:
    time.sleep(seconds)
