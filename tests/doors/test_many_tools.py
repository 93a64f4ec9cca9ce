"""A server with far too many tools, which change all the time: the others do not notice."""

import time

from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import text_of

MOST = 6_000
TURNS = 5


def test_thirty_thousand_tools_delay_no_other_server(gateway: Gateway) -> None:
    limits = {**QUICK, "connect_timeout_seconds": 60.0, "call_timeout_seconds": 60.0}
    peer = gateway({"many": script("many"), "up": script("upstream")}, gateway=limits)
    peer.wait_for_tools("up__echo", "many__change", deadline=60)
    many = [name for name in peer.tools() if name.startswith("many__")]
    assert len(many) == MOST
    began, slowest, turn = time.monotonic(), 0.0, 1
    peer.call("many__change", 60)
    while turn < TURNS:
        start = time.monotonic()
        assert text_of(peer.call("up__echo", 60, text="on")) == "on"
        slowest = max(slowest, time.monotonic() - start)
        turn = int(text_of(peer.call("many__tool_1", 60)))
        assert time.monotonic() - began < 120
    assert slowest < 2.0, "the whole list was read between a call and its answer"
