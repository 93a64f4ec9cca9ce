"""The configuration is taken up while the gateway runs; a wrong one changes nothing."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.doors.conftest import Gateway, script, write_config
from tests.doors.peer import Peer, text_of
from tests.doors.reading import everything


def until(peer: Peer, what: Callable[[], bool], deadline: float = 20.0) -> None:
    end = time.monotonic() + deadline
    while not what():
        assert time.monotonic() < end
        peer.drain(0.1)


def test_a_server_that_is_added_and_taken_out(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    pid = text_of(peer.call("up__received"))
    write_config(home, {"up": script("upstream"), "more": script("upstream")})
    until(peer, lambda: any("list_changed" in note["method"] for note in peer.notifications))
    assert "more__echo" in peer.tools()
    assert everything(peer.call("more__echo", text="new")) == "new"
    assert text_of(peer.call("up__received")).split('"pid"')[1] == pid.split('"pid"')[1]
    write_config(home, {"more": script("upstream")})
    until(peer, lambda: "up__echo" not in peer.tools())
    assert everything(peer.call("more__echo", text="still")) == "still"


def test_a_call_under_way_outlives_its_server_s_change(gateway: Gateway, home: Path) -> None:
    limits = {"call_timeout_seconds": 20.0}
    peer = gateway({"up": script("upstream")}, gateway=limits)
    peer.wait_for_tools("up__slow")
    slow = peer.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 4}})
    write_config(home, {"up": script("upstream", "--name", "another")}, gateway=limits)
    assert text_of(peer.reply(slow, 20)["result"]) == "slept"
    until(peer, lambda: "another" in text_of(peer.call("up__received")))


def test_a_wrong_file_changes_nothing_and_is_named(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    (home / "config.toml").write_text("[server.up\n")
    until(peer, lambda: any(note["method"].endswith("/message") for note in peer.notifications))
    [note] = [note for note in peer.notifications if note["method"].endswith("/message")]
    assert "config.toml" in note["params"]["data"]
    assert everything(peer.call("up__echo", text="on")) == "on"


def test_what_is_said_about_a_tool_holds_at_once(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    assert 'key="' in everything(peer.call("up__big_json"))
    plain = {"up__*": {"compress": {"strategy": "none"}}}
    write_config(home, {"up": script("upstream")}, tool=plain)
    until(peer, lambda: 'key="' not in everything(peer.call("up__big_json")))
