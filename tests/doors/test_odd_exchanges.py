"""Servers over HTTP whose exchanges go wrong: every call is answered, only the broken one fails,
and no text of a server becomes a message of its own."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.doors.conftest import QUICK, Gateway, listening, script
from tests.doors.peer import Peer, text_of
from tests.doors.reading import complaint
from tests.doors.test_soak import rss_mb

CALL_SECONDS = 40.0
"""The timeout of a call. A test that has to wait for it fails."""
AT_ONCE = 20.0


@pytest.fixture
def odd() -> Iterator[str]:
    with listening("odd_web") as url:
        yield url


@pytest.fixture
def peer(gateway: Gateway, odd: str) -> Peer:
    limits = {**QUICK, "call_timeout_seconds": CALL_SECONDS}
    peer = gateway({"odd": {"url": odd}, "up": script("upstream")}, gateway=limits)
    peer.wait_for_tools("odd__echo", "up__echo")
    return peer


def test_line_breaks_inside_an_answer_start_no_message(peer: Peer) -> None:
    for tool in ("pretty", "pretty_event", "large_pretty"):
        answer = peer.call_raw(f"odd__{tool}", deadline=AT_ONCE)
        assert b"pretty 1.10" in answer
        if tool != "large_pretty":
            assert json.loads(answer)["result"]["x"][0]["id"] == 777, "it stays where it was"
    peer.drain(0.3)
    assert peer.requests == []


def test_a_carriage_return_inside_a_call_starts_no_message(peer: Peer) -> None:
    smuggled = '{"jsonrpc":"2.0","id":9,"method":"tools/list"}'
    answer = peer.call_raw("up__echo", f'{{"text":"é","more":[\r{smuggled}\r]}}', AT_ONCE)
    assert text_of(json.loads(answer)["result"]) == "é"


WITHOUT = ["empty", "html", "accepted", "other_id", "odd_id", "cr_id", "torn", "reset", "gzip"]


def test_an_exchange_without_an_answer_fails_at_once_and_alone(peer: Peer) -> None:
    slow = peer.start("tools/call", {"name": "odd__slow", "arguments": {"seconds": 5}})
    for tool in WITHOUT:
        call = {"name": f"odd__{tool}", "arguments": {}}
        assert "upstream 'odd' ended" not in complaint(peer.ask("tools/call", call, AT_ONCE))
    assert text_of(dict(peer.reply(slow, AT_ONCE)["result"])) == "slow"
    assert text_of(peer.call("odd__long_retry", AT_ONCE)) == "long_retry"


def test_a_body_over_the_limit_is_read_no_further(gateway: Gateway, odd: str) -> None:
    limits = {**QUICK, "call_timeout_seconds": CALL_SECONDS}
    peer = gateway({"odd": {"url": odd}}, gateway=limits)
    peer.wait_for_tools("odd__echo")
    slow = peer.start("tools/call", {"name": "odd__slow", "arguments": {"seconds": 2}})
    message = complaint(peer.ask("tools/call", {"name": "odd__endless", "arguments": {}}, AT_ONCE))
    assert "over the limit" in message
    sent = json.loads(text_of(peer.call("odd__sent", which="endless", wait=10)))
    assert sent["over"], sent
    assert text_of(dict(peer.reply(slow, AT_ONCE)["result"])) == "slow"


@pytest.mark.parametrize("how", ["timeout", "cancelled"])
def test_a_cancelled_wait_stops_reading(gateway: Gateway, odd: str, how: str) -> None:
    seconds = 2.0 if how == "timeout" else CALL_SECONDS
    peer = gateway({"odd": {"url": odd}}, gateway={**QUICK, "call_timeout_seconds": seconds})
    peer.wait_for_tools("odd__echo")
    call = peer.start("tools/call", {"name": "odd__flood", "arguments": {}})
    if how == "timeout":
        peer.reply(call, AT_ONCE)
    else:
        peer.drain(0.5)
        peer.send({"method": "notifications/cancelled", "params": {"requestId": call}})
    peer.drain(1)
    end = time.monotonic() + AT_ONCE
    while not json.loads(text_of(peer.call("odd__sent", which="flood", wait=0.5)))["over"]:
        assert time.monotonic() < end, "its POST is still open"


def test_unread_messages_of_an_agent_wait_at_the_server(peer: Peer) -> None:
    before = rss_mb(peer.process.pid)
    peer.start("tools/call", {"name": "odd__flood", "arguments": {}})
    time.sleep(4)
    assert rss_mb(peer.process.pid) - before < 60


def test_a_notification_that_one_server_does_not_read_delays_nobody(
    gateway: Gateway, odd: str
) -> None:
    peer = gateway({"odd": {"url": odd}, "deaf": script("deaf"), "up": script("upstream")})
    peer.wait_for_tools("odd__echo", "up__echo", "deaf__echo")
    large = {"padding": "x" * 200_000}
    for _ in range(20):
        peer.send({"method": "notifications/roots/list_changed", "params": large})
    began = time.monotonic()
    assert peer.result("ping", {}, AT_ONCE) == {}
    assert text_of(peer.call("up__echo", AT_ONCE, text="on")) == "on"
    assert time.monotonic() - began < 3, "sooner than a notice is given up"
    peer.send({"method": "notifications/vendor/last"})
    assert peer.result("ping", {}, AT_ONCE) == {}
