"""A server's saved tools are listed while it starts, and a call waits for it."""

import json
import sys
import time
from pathlib import Path

from tests.doors.conftest import Gateway
from tests.doors.peer import Peer
from tests.doors.reading import everything
from tests.doors.test_start import wait_for_notification

SERVER = """
import json, sys, time
from pathlib import Path
said = json.loads(Path(sys.argv[1]).read_text())
time.sleep(said["seconds"])
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "slow", "version": "1"}}
    elif asked.get("method") == "tools/list":
        schema = {"type": "object", "x": 1.10}
        result = {"tools": [{"name": name, "inputSchema": schema} for name in said["tools"]]}
    elif asked.get("method") == "tools/call":
        result = {"content": [{"type": "text", "text": asked["params"]["name"] + " ran"}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SLOWER_THAN_THE_FIRST_START = 10
LIMITS = {"connect_timeout_seconds": 30.0, "call_timeout_seconds": 30.0}


class Stage:
    """A gateway that is started again and again, with the same server and home."""

    def __init__(self, gateway: Gateway, folder: Path, home: Path) -> None:
        self.gateway = gateway
        self.home = home
        self.state = folder / "state.json"
        (folder / "slow.py").write_text(SERVER)
        self.servers = {"slow": [sys.executable, str(folder / "slow.py"), str(self.state)]}

    def start(self, seconds: float, *tools: str, **again: object) -> Peer:
        self.state.write_text(json.dumps({"seconds": seconds, "tools": tools}))
        return self.gateway(again.get("servers", self.servers), gateway=LIMITS)

    def known(self, *tools: str) -> None:
        """Start the server with these tools, and wait until the gateway has saved them."""
        peer = self.start(0, *tools)
        peer.wait_for_tools(f"slow__{tools[0]}", deadline=20)
        end = time.monotonic() + 20
        while not all((self.home / name).exists() for name in ("tools.json", "offer.json")):
            assert time.monotonic() < end
            peer.drain(0.05)


def listed(peer: Peer) -> list[str]:
    tools = peer.result("tools/list", {})["tools"]
    return [tool["name"] for tool in tools if tool["name"].startswith("slow__")]


def test_the_saved_tools_are_listed_and_a_call_waits(
    gateway: Gateway, tmp_path: Path, home: Path
) -> None:
    stage = Stage(gateway, tmp_path, home)
    stage.known("read", "write")
    peer = stage.start(4, "read", "write")
    assert listed(peer) == ["slow__read", "slow__write"]
    assert everything(peer.call("slow__read", 30)) == "read ran"


def test_changed_tools_are_announced_when_the_server_is_up(
    gateway: Gateway, tmp_path: Path, home: Path
) -> None:
    stage = Stage(gateway, tmp_path, home)
    stage.known("read", "write")
    peer = stage.start(SLOWER_THAN_THE_FIRST_START, "read", "new")
    assert listed(peer) == ["slow__read", "slow__write"]
    wait_for_notification(peer, "notifications/tools/list_changed", 30)
    assert listed(peer) == ["slow__read", "slow__new"]


def test_another_program_under_the_same_name_has_its_own_list(
    gateway: Gateway, tmp_path: Path, home: Path
) -> None:
    stage = Stage(gateway, tmp_path, home)
    stage.known("read")
    other = {"slow": [*stage.servers["slow"], "--other"]}
    assert listed(stage.start(SLOWER_THAN_THE_FIRST_START, "read", servers=other)) == []
