"""Fifty agents, each with a gateway of its own, on one home."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GATEWAYS = 50
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Plain:
    """A gateway with its standard streams."""

    def __init__(self, home: Path) -> None:
        env = {**os.environ, "UPWELL_HOME": str(home)}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-P", "-m", "upwell", "serve"]
        self.process = subprocess.Popen(command, env=env, **pipes)

    def ask(self, number: int, method: str, params: dict[str, Any]) -> None:
        assert self.process.stdin
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        assert self.process.stdout
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == number:
                return dict(message["result"])
        raise AssertionError("the gateway ended")

    def end(self) -> tuple[int, bytes]:
        """Returns the exit code and the text on stderr."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@pytest.mark.slow
def test_no_note_is_refused_and_no_gateway_ends_with_a_traceback(tmp_path: Path) -> None:
    gateways = [Plain(tmp_path / "home") for _ in range(GATEWAYS)]
    for gateway in gateways:
        gateway.ask(1, "initialize", HELLO)
    for gateway in gateways:
        gateway.answer(1)
    for number, gateway in enumerate(gateways):
        note = {"content": f"gateway {number} noted a fact about widget{number}"}
        gateway.ask(2, "tools/call", {"name": "upwell__add_memory", "arguments": note})
    refused = [reply for gateway in gateways if (reply := gateway.answer(2)).get("isError")]
    assert refused == []
    assert {gateway.end() for gateway in gateways} == {(0, b"")}
    notes = json.loads((tmp_path / "home" / "stm.json").read_text())
    assert len(notes) == GATEWAYS
    logs = b"".join(path.read_bytes() for path in (tmp_path / "home" / "log").iterdir())
    assert b"Traceback" not in logs
