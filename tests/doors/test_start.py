"""Servers that fail to start properly: `initialize` is answered at once nevertheless."""

import time
from pathlib import Path

import pytest

from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import Peer
from tests.doors.reading import complaint, everything

HELLO_SECONDS = 8.0
ANSWER_SECONDS = 40.0
SILENT = {**QUICK, "connect_timeout_seconds": 12.0}
"""How long a server that never answers is waited for: longer than `initialize` may take."""
GOOD = {"good": script("upstream")}

DEAD = {
    "no such command": ["/nonexistent/bin/tide-server", "--stdio"],
    "not executable": ["/etc/hostname"],
    "exits at once": script("odd", "--start", "exit:3"),
    "exits without an error": script("odd", "--start", "exit:0"),
    "never answers": script("odd", "--start", "silent"),
    "answers null": script("odd", "--start", "null"),
    "answers a string": script("odd", "--start", "string"),
    "lists null": script("odd", "--start", "list-null"),
}


@pytest.mark.parametrize("way", DEAD)
def test_a_dead_server_delays_nobody(gateway: Gateway, way: str) -> None:
    began = time.monotonic()
    peer = gateway({"bad": DEAD[way], **GOOD}, hello=False, gateway=SILENT)
    peer.hello(HELLO_SECONDS)
    assert time.monotonic() - began < HELLO_SECONDS
    peer.wait_for_tools("good__echo")
    assert everything(peer.call("good__echo", 20, text="here")) == "here"
    began = time.monotonic()
    message = complaint(
        peer.ask("tools/call", {"name": "bad__ok", "arguments": {}}, ANSWER_SECONDS)
    )
    assert "bad" in message
    assert time.monotonic() - began < ANSWER_SECONDS
    assert everything(peer.call("good__echo", 20, text="on")) == "on"


@pytest.mark.parametrize(
    ("way", "word"),
    [
        ("no such command", "tide-server"),
        ("exits at once", "harbour database"),
        ("exits at once", "3"),
    ],
)
def test_the_error_gives_the_reason(gateway: Gateway, way: str, word: str) -> None:
    peer = gateway({"bad": DEAD[way], **GOOD})
    message = complaint(
        peer.ask("tools/call", {"name": "bad__ok", "arguments": {}}, ANSWER_SECONDS)
    )
    assert word in message


def test_a_slow_server_is_listed_later(gateway: Gateway) -> None:
    began = time.monotonic()
    servers = {"slow": script("odd", "--start", "delay:10"), **GOOD}
    peer = gateway(servers, hello=False, gateway={"connect_timeout_seconds": 60.0})
    peer.hello(HELLO_SECONDS)
    peer.wait_for_tools("good__echo")
    assert everything(peer.call("good__echo", 20, text="first")) == "first"
    peer.wait_for_tools("slow__ok", deadline=60)
    assert time.monotonic() - began >= 9.5
    assert everything(peer.call("slow__ok", 20)) == "fine"


def test_a_call_waits_for_its_slow_server(gateway: Gateway) -> None:
    limits = {"connect_timeout_seconds": 20.0, "call_timeout_seconds": 20.0}
    peer = gateway({"slow": script("odd", "--start", "delay:2"), **GOOD}, gateway=limits)
    assert everything(peer.call("slow__ok", 120)) == "fine"


def test_new_tools_are_announced_to_the_agent(gateway: Gateway) -> None:
    servers = {"slow": script("odd", "--start", "delay:25"), **GOOD}
    limits = {"connect_timeout_seconds": 60.0}
    peer = gateway(servers, gateway=limits)
    assert "slow__ok" not in peer.wait_for_tools("good__echo")
    wait_for_notification(peer, "notifications/tools/list_changed", 60)
    assert "slow__ok" in peer.tools()


def wait_for_notification(peer: Peer, method: str, deadline: float) -> None:
    end = time.monotonic() + deadline
    while not any(note["method"] == method for note in peer.notifications):
        assert time.monotonic() < end, f"no {method}"
        peer.drain(0.1)


def test_a_server_that_fails_at_first_is_started_again(gateway: Gateway, tmp_path: Path) -> None:
    flaky = script("odd", "--start", "fail-first:2", "--pids", str(tmp_path / "pids"))
    peer = gateway({"flaky": flaky, **GOOD})
    peer.wait_for_tools("flaky__ok", deadline=60)
    assert everything(peer.call("flaky__ok", 20)) == "fine"
    assert len((tmp_path / "pids").read_text().split()) == 3


@pytest.mark.parametrize("way", ["junk", "strict", "deaf"])
def test_odd_starts_that_work(gateway: Gateway, way: str) -> None:
    """Junk before the handshake; servers that fail on `server/discover`."""
    peer = gateway({"odd": script("odd", "--era", "legacy", "--start", way)})
    peer.wait_for_tools("odd__ok", deadline=60)
    assert everything(peer.call("odd__ok", 20)) == "fine"


@pytest.mark.parametrize("era", ["legacy", "modern", "both"])
@pytest.mark.parametrize("modern", [False, True])
def test_every_client_era_works_with_every_server_era(
    gateway: Gateway, era: str, modern: bool
) -> None:
    peer = gateway({"up": script("upstream", "--era", era)}, modern=modern)
    peer.wait_for_tools("up__echo")
    assert everything(peer.call("up__echo", text="hi")) == "hi"


def test_all_pages_of_tools_are_listed(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream", "--page", "2")})
    tools = peer.wait_for_tools("up__echo")
    assert {"up__received", "up__big_json", "up__ask_client"} <= set(tools)


def test_an_endless_list_of_tools_ends(gateway: Gateway) -> None:
    peer = gateway({"odd": script("odd", "--start", "endless"), **GOOD})
    peer.wait_for_tools("good__echo")
    assert everything(peer.call("good__echo", 20, text="on")) == "on"


def test_invalid_declarations_are_left_out(gateway: Gateway) -> None:
    peer = gateway({"odd": script("odd", "--start", "list-odd"), **GOOD})
    assert set(peer.wait_for_tools("odd__ok")) >= {"odd__ok", "good__echo"}
    assert everything(peer.call("odd__ok", 20)) == "fine"


def test_tools_that_come_later_are_announced(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__add_tool")
    peer.call("up__add_tool", name="late")
    wait_for_notification(peer, "notifications/tools/list_changed", 30)
    peer.wait_for_tools("up__late", deadline=30)
    assert everything(peer.call("up__late", 5)) == "I am late"


@pytest.mark.parametrize("method", ["ping", "roots/list", "no/such/method"])
def test_requests_of_a_server_are_answered(gateway: Gateway, method: str) -> None:
    peer = gateway({"up": script("upstream", "--era", "legacy")})
    peer.wait_for_tools("up__ask_client")
    assert everything(peer.call("up__ask_client", 12, method=method)) == "answered"
