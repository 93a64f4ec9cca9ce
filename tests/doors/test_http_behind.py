"""Servers behind the gateway that are reached over HTTP."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import QUICK, Gateway, listening, script
from tests.doors.peer import Peer, text_of
from tests.doors.reading import complaint

SECRET = "s3cret-of-this-server"


@pytest.fixture
def web() -> Iterator[str]:
    """The address of a server."""
    with listening("web") as url:
        yield url


@pytest.fixture
def peer(gateway: Gateway, web: str) -> Peer:
    server = {"url": web, "headers": {"Authorization": f"Bearer {SECRET}"}}
    peer = gateway({"web": server})
    peer.wait_for_tools("web__echo")
    return peer


def test_a_call_and_its_headers(peer: Peer) -> None:
    assert text_of(peer.call("web__echo", text="é")) == "é"
    seen = {k.lower(): v for k, v in json.loads(text_of(peer.call("web__headers"))).items()}
    assert seen["authorization"] == f"Bearer {SECRET}"
    assert seen["mcp-protocol-version"] == "2025-11-25"
    assert seen["mcp-session-id"].startswith("session-")


def test_numbers_are_unchanged(peer: Peer) -> None:
    assert b'"x":1.10,"y":1E400,"z":[1.0]' in peer.call_raw("web__exact")


def test_an_answer_as_a_stream_of_events(peer: Peer) -> None:
    assert text_of(peer.call("web__events")) == "by event"
    [note] = [n for n in peer.notifications if n["method"] == "notifications/message"]
    assert note["params"]["level"] == "info"


def test_a_broken_stream_is_resumed(peer: Peer) -> None:
    assert text_of(peer.call("web__broken", 10)) == "in the end"


@pytest.mark.parametrize("tool", ["huge", "huge_event"])
def test_an_answer_over_the_limit(peer: Peer, tool: str) -> None:
    message = complaint(peer.ask("tools/call", {"name": f"web__{tool}", "arguments": {}}, 10))
    assert "web" in message
    assert "over the limit" in message
    assert text_of(peer.call("web__echo", text="on")) == "on"


def test_an_http_refusal_is_reported(peer: Peer) -> None:
    message = complaint(peer.ask("tools/call", {"name": "web__refuse", "arguments": {}}))
    assert "HTTP 503: <h1>out to lunch</h1>" in message
    assert "check whether the call took effect" in message


def test_a_forgotten_session_is_opened_again(peer: Peer) -> None:
    """The call may be repeated, since it has no effects."""
    assert text_of(peer.call("web__forget", 10)) == "known again"
    assert text_of(peer.call("web__echo", text="on")) == "on"


def test_a_session_that_is_unknown_by_an_error_is_opened_again(peer: Peer) -> None:
    assert text_of(peer.call("web__forget", 10, politely=True)) == "known again"
    assert text_of(peer.call("web__echo", text="on")) == "on"


@pytest.fixture(params=["", "--slams"], ids=["refused", "dropped"])
def mortal(gateway: Gateway, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A server that dies during calls, which it records in `calls`. Until it is back, connections
    to its address are refused, or accepted and dropped."""
    args = ["--calls", str(tmp_path / "calls"), *filter(None, [request.param])]
    with listening("mortal", *args, end=signal.SIGINT) as url:
        peer = gateway({"web": {"url": url}}, gateway={**QUICK, "call_timeout_seconds": 20.0})
        peer.wait_for_tools("web__echo")
        yield peer


def test_a_harmless_call_is_repeated_when_its_server_died(mortal: Peer, tmp_path: Path) -> None:
    assert text_of(mortal.call("web__read", 20)) == "alive"
    assert (tmp_path / "calls").read_text() == "read\n" * 2


def test_a_harmless_call_is_made_twice_at_most(mortal: Peer, tmp_path: Path) -> None:
    message = complaint(
        mortal.ask("tools/call", {"name": "web__read", "arguments": {"deaths": 9}}, 20)
    )
    assert "upstream 'web'" in message
    assert (tmp_path / "calls").read_text() == "read\n" * 2


def test_a_call_with_effects_is_made_once_over_http(mortal: Peer, tmp_path: Path) -> None:
    message = complaint(mortal.ask("tools/call", {"name": "web__write", "arguments": {}}, 20))
    assert "check whether the call took effect before you repeat it" in message
    time.sleep(2)
    assert (tmp_path / "calls").read_text() == "write\n"
    assert text_of(mortal.call("web__echo", 20, text="on")) == "on"


def test_nothing_listens_at_the_address(gateway: Gateway) -> None:
    peer = gateway({"gone": {"url": "http://127.0.0.1:9/mcp"}, "up": script("upstream")})
    peer.wait_for_tools("up__echo")
    message = complaint(peer.ask("tools/call", {"name": "gone__x", "arguments": {}}, 10))
    assert "'gone'" in message
    assert "127.0.0.1:9" in message


@pytest.mark.parametrize("modern", [False, True])
def test_the_official_server_over_http(gateway: Gateway, tmp_path: Path, modern: bool) -> None:
    from tests.doors.conformance.run import REFERENCE, free_port, program

    port = free_port()
    command = [*REFERENCE, "--port", str(port)]
    with program(command, port, {}, tmp_path / "reference.log"):
        address = {"url": f"http://127.0.0.1:{port}/mcp"}
        limits = {"connect_timeout_seconds": 20.0}
        peer = gateway({"ref": address}, modern=modern, gateway=limits)
        peer.wait_for_tools("ref__test_simple_text")
        assert "simple text" in text_of(peer.call("ref__test_simple_text"))
        prompt = peer.result("prompts/get", {"name": "ref__test_simple_prompt"})
        assert "simple prompt" in prompt["messages"][0]["content"]["text"]
        assert peer.result("resources/read", {"uri": "test://static-text"})["contents"]


def test_add_with_an_address(home: Path, upwell: Upwell) -> None:
    url = "https://example.org/mcp"
    upwell("add", "web", "--url", url, "--header", f"Authorization={SECRET}")
    listed = json.loads(upwell("list", "--json").out)
    assert listed["servers"][0]["command"] == url
    assert SECRET not in upwell("config", "show", "--json").out
    assert SECRET in (home / "config.toml").read_text()
    assert upwell("add", "x").code == 2
    assert upwell("add", "x", "--url", "ftp://x").code == 2


OLD = """
import sys
from mcp.server import MCPServer

server = MCPServer("old")

@server.tool()
def echo(text: str) -> str:
    return text

server.run("sse", host="127.0.0.1", port=int(sys.argv[1]))
"""


def test_a_server_of_the_2024_protocol(gateway: Gateway, tmp_path: Path) -> None:
    """HTTP with SSE, as the official SDK serves it."""
    from tests.doors.conformance.run import free_port, program

    port = free_port()
    command = [sys.executable, "-c", OLD, str(port)]
    with program(command, port, os.environ, tmp_path / "old.log"):
        address = {"url": f"http://127.0.0.1:{port}/sse", "transport": "sse"}
        limits = {"connect_timeout_seconds": 20.0}
        peer = gateway({"old": address}, gateway=limits)
        peer.wait_for_tools("old__echo")
        assert text_of(peer.call("old__echo", text="é 🌊")) == "é 🌊"
