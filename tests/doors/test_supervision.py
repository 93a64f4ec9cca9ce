"""The handling of servers that die, are slow, or are overloaded."""

import json
import signal
from pathlib import Path

from tests.conftest import Upwell
from tests.doors.conftest import QUICK, Gateway, script
from tests.doors.peer import Peer, text_of
from tests.doors.reading import complaint, everything
from tests.doors.test_reload import until


def test_too_many_calls_are_refused_at_once(gateway: Gateway) -> None:
    server = {"command": script("odd")[0], "args": script("odd")[1:], "max_in_flight": 3}
    limits = {**QUICK, "call_timeout_seconds": 90.0}
    peer = gateway({"bad": server, "good": script("upstream")}, gateway=limits)
    peer.wait_for_tools("bad__hang", "good__echo")
    hanging = [peer.start("tools/call", {"name": "bad__hang", "arguments": {}}) for _ in range(3)]
    burst = [peer.start("tools/call", {"name": "bad__ok", "arguments": {}}) for _ in range(200)]
    for entry in burst:
        message = complaint(peer.reply(entry))
        assert "'bad' has 3 calls in flight" in message
    assert everything(peer.call("good__echo", text="free")) == "free"
    assert not set(hanging) & set(peer._replies)
    for entry in hanging:
        peer.send({"method": "notifications/cancelled", "params": {"requestId": entry}})
    assert everything(peer.call("bad__ok")) == "fine"


def test_a_read_only_call_is_made_again(gateway: Gateway, tmp_path: Path) -> None:
    peer = gateway({"bad": script("odd", "--state", str(tmp_path))})
    peer.wait_for_tools("bad__die_once")
    assert everything(peer.call("bad__die_once", 10)) == "the second time"


def test_a_hung_call_is_cancelled_at_its_server(gateway: Gateway) -> None:
    peer = gateway({"talk": script("talk", "--era", "legacy")})
    peer.wait_for_tools("talk__wait")
    message = complaint(peer.ask("tools/call", {"name": "talk__wait", "arguments": {}}, 30))
    assert "within 3 s" in message
    assert len(seen(peer)["cancelled"]) == 1


def seen(peer: Peer) -> dict:
    """The server's own record."""
    return dict(json.loads(text_of(peer.call("talk__seen"))))


def test_a_cancellation_keeps_its_order_and_is_passed_on_at_once(gateway: Gateway) -> None:
    """Messages keep their order: a call that is sent after the cancellation arrives after it."""
    limits = {**QUICK, "call_timeout_seconds": 90.0}
    peer = gateway({"talk": script("talk", "--era", "legacy")}, gateway=limits)
    peer.wait_for_tools("talk__wait")
    for count in range(1, 6):
        waiting = peer.start("tools/call", {"name": "talk__wait", "arguments": {}})
        until(peer, lambda n=count: seen(peer)["waiting"] == n)
        peer.send({"method": "notifications/cancelled", "params": {"requestId": waiting}})
        assert len(seen(peer)["cancelled"]) == count


def test_progress_keeps_a_call_alive(gateway: Gateway) -> None:
    limits = {**QUICK, "call_timeout_seconds": 3.0}
    peer = gateway({"up": script("talk", "--era", "legacy")}, gateway=limits)
    peer.wait_for_tools("up__slow_progress")
    params = {"name": "up__slow_progress", "arguments": {}}
    stored = peer.ask("tools/call", {**params, "_meta": {"progressToken": 1}}, 40)
    assert text_of(stored["result"]) == "after a while"
    assert "within 3 s" in complaint(peer.ask("tools/call", params, 40))


def test_subscriptions_are_restored_after_a_restart(gateway: Gateway, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    peer = gateway({"talk": script("talk", "--era", "legacy", "--pids", str(pids))})
    peer.wait_for_tools("talk__seen")
    peer.result("resources/subscribe", {"uri": "talk://one"})
    peer.result("logging/setLevel", {"level": "warning"})
    complaint(peer.ask("tools/call", {"name": "talk__die", "arguments": {}}, 10))
    peer.wait_for_tools("talk__seen")

    def taken_up() -> bool:
        message = peer.ask("tools/call", {"name": "talk__seen", "arguments": {}})
        if message["result"].get("isError"):
            return False
        known = json.loads(text_of(message["result"]))
        return bool(known["followed"] == ["talk://one"] and known["level"] == "warning")

    until(peer, taken_up)
    assert taken_up()


def test_calls_may_finish_during_shutdown(gateway: Gateway, tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    peer = gateway({"up": script("upstream", "--log", str(log))})
    peer.wait_for_tools("up__slow")
    slow = peer.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 1.5}})
    until(peer, lambda: b'"slow"' in log.read_bytes())
    peer.process.send_signal(signal.SIGTERM)
    assert text_of(peer.reply(slow, 30)["result"]) == "slept"
    assert peer.process.wait(30) == 0


def test_answers_are_cached_until_the_cache_is_cleared(gateway: Gateway, upwell: Upwell) -> None:
    peer = gateway({"up": script("upstream")}, cache={"tools": ["up__read"]})
    peer.wait_for_tools("up__read")

    def answered(path: str) -> object:
        """The line that the server received, which differs for every call that reaches it."""
        return json.loads(text_of(peer.call("up__read", path=path)))["line"]

    until(peer, lambda: answered("a") == answered("a"))
    first = answered("a")
    assert answered("b") != first
    assert text_of(peer.call("up__received")) != text_of(peer.call("up__received"))
    assert "cached responses" in upwell("cache", "clear").out
    assert answered("a") != first
