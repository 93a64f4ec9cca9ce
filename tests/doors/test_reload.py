"""A changed configuration takes effect while the gateway runs; an invalid one changes nothing."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.conftest import QUICK, Gateway, script, write_config
from tests.doors.peer import Peer, text_of
from tests.doors.reading import complaint, everything


def until(peer: Peer, what: Callable[[], bool], deadline: float = 20.0) -> None:
    end = time.monotonic() + deadline
    while not what():
        assert time.monotonic() < end
        peer.drain(0.1)


def test_a_server_is_added_and_removed(gateway: Gateway, home: Path) -> None:
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


def test_a_call_in_flight_outlives_the_change_of_its_server(gateway: Gateway, home: Path) -> None:
    limits = {"call_timeout_seconds": 20.0}
    peer = gateway({"up": script("upstream")}, gateway=limits)
    peer.wait_for_tools("up__slow")
    slow = peer.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 4}})
    write_config(home, {"up": script("upstream", "--name", "another")}, gateway=limits)
    assert text_of(peer.reply(slow, 20)["result"]) == "slept"
    until(peer, lambda: "another" in text_of(peer.call("up__received")))


def test_an_invalid_file_changes_nothing_and_is_reported(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    (home / "config.toml").write_text("[server.up\n")
    until(peer, lambda: any(note["method"].endswith("/message") for note in peer.notifications))
    [note] = [note for note in peer.notifications if note["method"].endswith("/message")]
    assert "config.toml" in note["params"]["data"]
    assert everything(peer.call("up__echo", text="on")) == "on"


def test_settings_of_a_tool_take_effect_at_once(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    assert 'key="' in everything(peer.call("up__big_json"))
    plain = {"up__*": {"compress": {"strategy": "none"}}}
    write_config(home, {"up": script("upstream")}, tool=plain)
    until(peer, lambda: 'key="' not in everything(peer.call("up__big_json")))


def told(peer: Peer) -> list[str]:
    """upwell's own log messages so far."""
    notes = [note["params"] for note in peer.notifications if note["method"].endswith("/message")]
    return [str(note["data"]) for note in notes if note["logger"] == "upwell"]


def test_a_budget_and_a_limit_take_effect_at_once(gateway: Gateway, home: Path) -> None:
    servers = {"up": script("upstream"), "bad": script("odd")}
    peer = gateway(servers, compress={"max_result_tokens": 100_000})
    peer.wait_for_tools("up__big_json", "bad__hang")
    assert 'key="' not in everything(peer.call("up__big_json"))
    limits = {**QUICK, "call_timeout_seconds": 0.7}
    write_config(home, servers, compress={"max_result_tokens": 500}, gateway=limits)
    until(peer, lambda: 'key="' in everything(peer.call("up__big_json")))
    message = complaint(peer.ask("tools/call", {"name": "bad__hang", "arguments": {}}))
    assert "within 0.7 s" in message
    assert told(peer) == []


def test_keys_that_need_a_restart_are_reported(gateway: Gateway, home: Path) -> None:
    servers = {"up": script("upstream")}
    peer = gateway(servers)
    peer.wait_for_tools("up__echo")
    sections = {"surface": {"max_count": 3, "race_ms": 200}, "stm": {"retention_days": 9}}
    limits = {**QUICK, "hosts": ["upwell.example"]}
    write_config(home, servers, gateway=limits, **sections)
    until(peer, lambda: bool(told(peer)))
    [reply] = told(peer)
    awaiting_restart = "gateway.hosts, stm.retention_days, surface.max_count"
    assert reply.endswith(f"restart upwell to apply {awaiting_restart}")


@pytest.mark.parametrize(
    "content",
    [
        b"x = " + b"[" * 20_000 + b"]" * 20_000,
        b"\xff\xfe",
        b"[surface]\nmax_cuont = 3\n",
        b"[server.up]\ncommand = 5\n",
        b"[server.up\n",
        b"[[server]]\n",
    ],
    ids=["deep", "bytes", "key", "type", "half", "shape"],
)
def test_after_an_invalid_file_a_valid_one_takes_effect(
    gateway: Gateway, home: Path, content: bytes
) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    (home / "config.toml").write_bytes(content)
    until(peer, lambda: bool(told(peer)))
    assert "the old one stays in effect" in told(peer)[0]
    assert everything(peer.call("up__echo", text="on")) == "on"
    write_config(home, {"up": script("upstream", "--name", "another")})
    until(peer, lambda: "another" in text_of(peer.call("up__received")))


def reloads(gateway: Gateway, home: Path, rounds: int) -> list[str]:
    """Each reload changes a server, a budget and a section while calls run; every call gets the
    right answer. Returns the names of the servers that answered.
    """
    limits = {"call_timeout_seconds": 60.0}

    def configure(number: int) -> None:
        servers = {"up": script("upstream", "--name", f"number-{number}-"), "still": STILL}
        sections = {"compress": {"max_result_tokens": 900 + number}, "stm": {"max_results": number}}
        write_config(home, servers, gateway=limits, **sections)

    configure(0)
    peer = gateway()
    peer.wait_for_tools("up__slow", "still__echo")
    pid, answered = process_of(peer, "still"), list[str]()
    for number in range(1, rounds + 1):
        slow = peer.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 0.5}})
        configure(number)
        new = f"number-{number}-"
        while new not in text_of(peer.call("up__received", 60)):
            assert everything(peer.call("still__echo", 60, text=new)) == new
        answered.append(new)
        assert text_of(peer.reply(slow, 60)["result"]) == "slept"
    assert process_of(peer, "still") == pid
    return answered


STILL = script("upstream", "--name", "still")


def process_of(peer: Peer, server: str) -> int:
    return int(json.loads(text_of(peer.call(f"{server}__received")))["pid"])


def test_reloads_under_load_drop_no_call(gateway: Gateway, home: Path) -> None:
    assert reloads(gateway, home, 4) == [f"number-{number}-" for number in range(1, 5)]


@pytest.mark.nightly
def test_a_hundred_reloads_under_load_drop_no_call(gateway: Gateway, home: Path) -> None:
    assert len(reloads(gateway, home, 100)) == 100
