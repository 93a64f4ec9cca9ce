"""What a client learns of the servers at the very first start, and of their changes later."""

import time

import pytest

from tests.doors.conftest import Gateway, listening, script
from tests.doors.peer import Peer
from tests.doors.reading import everything

CHANGED = "notifications/tools/list_changed"


@pytest.mark.parametrize("modern", [False, True])
def test_instructions_and_capabilities_are_known_at_the_first_start(
    gateway: Gateway, modern: bool
) -> None:
    peer = gateway({"up": script("upstream", "--name", "harbour")}, modern=modern, hello=False)
    offer = peer.hello()
    assert "## Server up\n\nInstructions of harbour." in offer["instructions"]
    assert set(offer["capabilities"]) == {"tools", "resources"}


def test_a_silent_server_delays_the_first_start_only(gateway: Gateway) -> None:
    peer = gateway({"bad": script("odd", "--start", "silent")}, hello=False)
    began = time.monotonic()
    peer.hello()
    first = time.monotonic() - began
    time.sleep(6.0)  # the servers get time to start, and then their combined offer is saved
    again = gateway(hello=False)
    began = time.monotonic()
    again.hello()
    assert time.monotonic() - began < first
    assert first > 2.0


def test_changed_tools_of_a_modern_server_on_http_are_announced(gateway: Gateway) -> None:
    with listening("listen") as url:
        peer = gateway({"far": {"url": url}}, modern=True, hello=False)
        offer = peer.hello()
        assert "Water the garden." in offer["instructions"]
        assert set(offer["capabilities"]) == {"tools", "resources"}, "no server offers more"
        peer.wait_for_tools("far__grow")
        peer.start("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        end = time.monotonic() + 3.0
        while time.monotonic() < end:  # the server's first stream ends in this time
            peer.drain(0.05)
        before = announced(peer)
        grown = everything(peer.call("far__grow"))
        peer.wait_for_tools(f"far__{grown}", deadline=10.0)
        assert announced(peer) > before


def announced(peer: Peer) -> int:
    return [note["method"] for note in peer.notifications].count(CHANGED)
