"""A gateway on HTTP, spoken to request by request."""

import http.client
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doors.agent import CAPABILITIES
from tests.doors.conformance.run import free_port, program
from tests.doors.peer import ENVELOPE, LEGACY, MODERN

BOTH = "application/json, text/event-stream"
EVENTS_FIRST = "text/event-stream, application/json"
Answer = tuple[int, dict[str, str], Any]


class Address:
    """The address of a gateway, and the token that opens it."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token

    def send(self, verb: str, body: Any = None, path: str = "/mcp", **headers: str) -> Answer:
        """Send one request. Returns status, headers and the last message of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent_headers = {"Authorization": f"Bearer {self.token}", "Accept": BOTH}
        sent_headers |= {"Content-Type": "application/json"}
        sent_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(verb, path, data, {k: v for k, v in sent_headers.items() if v})
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        kind = response.getheader("content-type", "")
        if kind.startswith("text/event-stream"):
            raw = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")][-1]
        known = {name.lower(): value for name, value in response.getheaders()}
        return response.status, known, json.loads(raw) if raw[:1] == b"{" else raw

    def events(self, session: str, body: Any) -> list[dict[str, Any]]:
        """Every message of the stream that answers a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent_headers = {"Authorization": f"Bearer {self.token}", "Accept": EVENTS_FIRST}
        sent_headers |= {"Content-Type": "application/json", "Mcp-Session-Id": session}
        connection.request("POST", "/mcp", json.dumps(body), sent_headers)
        lines = connection.getresponse().read().split(b"\n")
        connection.close()
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]

    def begin(self) -> "Conversation":
        hello = {"protocolVersion": LEGACY, "capabilities": CAPABILITIES, "clientInfo": {}}
        ask = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        status, headers, _ = self.send("POST", ask)
        assert status == 200
        return Conversation(self, headers["mcp-session-id"])

    def modern(self, method: str, params: Mapping[str, Any], **headers: str) -> Answer:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": {**params, "_meta": ENVELOPE},
        }
        name = params.get("name", params.get("uri", ""))
        sent_headers = {
            "MCP_Protocol_Version": MODERN,
            "Mcp_Method": method,
            "Mcp_Name": name,
            **headers,
        }
        return self.send("POST", body, **sent_headers)


class Conversation:
    """A session of the handshake era."""

    def __init__(self, address: Address, session: str) -> None:
        self.address = address
        self.session = session
        self.post("notifications/initialized", None)

    def post(self, method: str, identity: Any, params: Any = None, **headers: str) -> Answer:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if identity is not None:
            body["id"] = identity
        sent_headers = {"Mcp_Session_Id": self.session, "MCP_Protocol_Version": LEGACY, **headers}
        return self.address.send("POST", body, **sent_headers)

    def call(self, tool: str, identity: Any = 1, /, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        status, _, message = self.post("tools/call", identity, params)
        assert status == 200, message
        assert message["id"] == identity
        return dict(message["result"])


def said(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


@contextmanager
def serving(home: Path, log: Path, *, run_by: Sequence[str] = (), **env: str) -> Iterator[Address]:
    """`upwell serve --http` over a home that is already configured. The command `run_by`, if there
    is one, runs it."""
    port = free_port()
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),
        "UPWELL_HOME": str(home),
        **env,
    }
    serve = [sys.executable, "-m", "upwell", "serve", "--http", f"127.0.0.1:{port}"]
    with program([*run_by, *serve], port, variables, log):
        yield Address(port, (home / "token").read_text().strip())
