"""The test upstreams behave as documented when addressed directly; otherwise the door tests prove
nothing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.peer import MODERN, Peer, Silence, exact, member, text_of

SERVERS = Path(__file__).parent / "servers"
Start = Callable[..., Peer]


@pytest.fixture
def start(tmp_path: Path):
    peers = []

    def run(script: str, *args: str, modern: bool = False) -> Peer:
        command = [sys.executable, str(SERVERS / script), *args]
        peers.append(Peer(command, modern=modern, errors=tmp_path / "stderr"))
        return peers[-1]

    yield run
    for peer in peers:
        with peer:
            pass


@pytest.mark.parametrize("modern", [False, True])
def test_both_eras(start: Start, modern: bool) -> None:
    peer = start("upstream.py", modern=modern)
    hello = peer.hello()
    assert ("supportedVersions" in hello) == modern
    assert "echo" in peer.tools()
    result = peer.call("echo", text="hi")
    assert text_of(result) == "hi"
    assert result.get("resultType") == ("complete" if modern else None)


def test_a_modern_only_server_refuses_the_handshake(start: Start) -> None:
    peer = start("upstream.py", "--era", "modern")
    error = peer.ask("initialize", {"protocolVersion": "2025-11-25"})["error"]
    assert error["code"] == -32022
    assert error["data"]["supported"] == [MODERN]


def test_a_legacy_only_server_refuses_discover(start: Start) -> None:
    peer = start("upstream.py", "--era", "legacy", modern=True)
    assert peer.ask("server/discover")["error"]["code"] == -32601


def test_pages(start: Start) -> None:
    peer = start("upstream.py", "--page", "3")
    peer.hello()
    assert len(peer.result("tools/list")["tools"]) == 3
    assert "ask_client" in peer.tools()


def test_number_lexemes_are_on_the_wire(start: Start) -> None:
    peer = start("upstream.py")
    peer.hello()
    line = peer.call_raw("structured")
    assert b'"pi":1.10,"hundred":1e2,"big":123456789012345678901234567890' in line
    keys = [name for name, _ in member(exact(line), "result", "structuredContent")]
    assert keys.count("twice") == 2


def test_sizes(start: Start) -> None:
    peer = start("upstream.py")
    peer.hello()
    assert len(text_of(peer.call("big_json"))) > 200_000
    assert len(text_of(peer.call("big_markdown"))) > 300_000


@pytest.mark.parametrize("tool", ["half_line", "hang"])
def test_a_tool_that_never_answers(start: Start, tool: str) -> None:
    peer = start("odd.py")
    peer.hello()
    with pytest.raises(Silence):
        peer.call(tool, 0.3)


def test_a_tool_that_kills_its_server(start: Start) -> None:
    peer = start("odd.py")
    peer.hello()
    with pytest.raises(Silence, match="the tide went out"):
        peer.call("die")
    assert peer.process.wait(5) == 7


def test_tools_with_odd_answers(start: Start) -> None:
    peer = start("odd.py")
    peer.hello()
    assert peer.ask("tools/call", {"name": "result_null"})["result"] is None
    assert len(text_of(peer.call("deep_text"))) == 200_000
    assert text_of(peer.call("lone_surrogate")).encode("utf-8", "surrogatepass")
    peer.start("tools/call", {"name": "duplicate"})
    with pytest.raises(AssertionError, match="answered twice"):
        # The second answer may come after those of later calls.
        [peer.call("ok") for _ in range(100)]


def test_a_server_that_exits_at_once(start: Start) -> None:
    peer = start("odd.py", "--start", "exit:3")
    assert peer.process.wait(5) == 3
    assert "harbour" in peer.stderr()
