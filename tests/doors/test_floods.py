"""A server that sends as fast as it can holds up no other, and takes no memory."""

import statistics
import time

import pytest

from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import text_of
from tests.doors.servers.loud import MESSAGES, SECONDS
from tests.doors.test_soak import rss_mb


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_a_flood_holds_no_other_server_up(gateway: Gateway, kind: str) -> None:
    limits = {**QUICK, "call_timeout_seconds": 60.0}
    peer = gateway({"loud": script("loud"), "up": script("upstream")}, gateway=limits)
    peer.wait_for_tools("up__echo", "loud__flood", deadline=60)
    assert text_of(peer.call("up__echo", 60, text="on")) == "on"
    before, times = rss_mb(peer.process.pid), []
    peer.start("tools/call", {"name": "loud__flood", "arguments": {"kind": kind}})
    end = time.monotonic() + SECONDS - 0.5
    while time.monotonic() < end:
        start = time.monotonic()
        assert text_of(peer.call("up__echo", 60, text="on")) == "on"
        times.append(time.monotonic() - start)
        time.sleep(0.01)
    assert statistics.median(times) < 0.1
    assert rss_mb(peer.process.pid) - before < 20
