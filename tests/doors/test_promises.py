"""The gateway's promises in figures. The limits grow with the time of a plain call in the same
minute on the same machine, so a slow machine gets more time."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import QUICK, Gateway, script, write_config
from tests.doors.peer import Peer, peak_mb, text_of
from tests.doors.reading import complaint, everything
from tests.doors.test_soak import rss_mb

BUSY_SECONDS = 0.3
"""The delay that a busy machine may add once to any figure."""


def plain_call(peer: Peer, tool: str = "good__echo", times: int = 20) -> float:
    """The median of calls that do nothing."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        peer.call(tool, 30, text="x")
        took.append(time.perf_counter() - began)
    return median(took)


def eventually(what: Callable[[], bool], deadline: float = 30.0) -> float:
    """The seconds until the condition is true."""
    began = time.perf_counter()
    while not what():
        assert time.perf_counter() - began < deadline, "it never came true"
        time.sleep(0.002)
    return time.perf_counter() - began


def test_a_cancellation_arrives_as_fast_as_a_call(gateway: Gateway, tmp_path: Path) -> None:
    """According to the server's own log, a cancellation arrives within 100 ms plus the time of five
    plain calls on this machine.
    """
    log = tmp_path / "up.log"
    peer = gateway({"good": script("upstream", "--log", str(log))})
    peer.wait_for_tools("good__echo")
    usual, took = plain_call(peer), []
    for number in range(1, 8):
        peer.start("tools/call", {"name": "good__slow", "arguments": {"seconds": 600}})
        eventually(lambda n=number: log.read_bytes().count(b'"slow"') == n)
        id = peer._ids
        peer.send({"method": "notifications/cancelled", "params": {"requestId": id}})
        took.append(
            eventually(lambda n=number: log.read_bytes().count(b'"notifications/cancelled"') == n)
        )
    assert median(took) <= 0.1 + 5 * usual
    assert plain_call(peer) <= 5 * usual + BUSY_SECONDS, "later calls are as they were"


def test_a_changed_list_is_announced_within_a_second(gateway: Gateway) -> None:
    peer = gateway({"good": script("upstream")})
    peer.wait_for_tools("good__add_tool")
    usual, took = plain_call(peer), []
    for number in range(5):
        peer.drain(0.5)
        peer.notifications.clear()
        peer.call("good__add_tool", name=f"late_{number}")
        began = time.perf_counter()
        while not any("tools/list_changed" in note["method"] for note in peer.notifications):
            peer.drain(0.01)
            assert time.perf_counter() - began < 30
        took.append(time.perf_counter() - began)
        assert f"good__late_{number}" in peer.tools()
    assert median(took) <= 1.0 + 5 * usual


NOISY = ["hang", "stderr_flood", "no_newline", "notice_flood", "change_flood", "die", "half_line"]


@pytest.mark.parametrize("way", NOISY)
def test_one_server_does_not_delay_another(gateway: Gateway, way: str) -> None:
    """The median call to a good server, with and without a bad one at work."""
    peer = gateway({"bad": script("odd"), "good": script("upstream")})
    peer.wait_for_tools("bad__ok", "good__echo")
    usual = plain_call(peer)
    started = [peer.start("tools/call", {"name": f"bad__{way}", "arguments": {}}) for _ in range(4)]
    assert plain_call(peer) <= 0.1 + 5 * usual
    for id in started:
        peer.reply(id, 60)


def test_noise_takes_no_memory(gateway: Gateway) -> None:
    """A flood on stderr, junk, broken bytes, a line of megabytes without an end: the second and
    third time, memory does not grow.
    """
    noise = ["stderr_flood", "junk_lines", "bad_utf8_line", "bad_utf8_inside", "no_newline"]
    noise += ["split_line", "notice_flood", "odd_notices"]
    patient = {**QUICK, "call_timeout_seconds": 30.0}
    peer = gateway({"bad": script("odd")}, gateway=patient)
    peer.wait_for_tools("bad__ok")

    def all_of_it() -> float:
        for way in noise:
            peer.call(f"bad__{way}", 60)
        return rss_mb(peer.process.pid)

    after_once = all_of_it()
    all_of_it()
    assert all_of_it() - after_once < 20


def workers(peer: Peer) -> list[int]:
    """The processes in which large results are shortened."""
    collected = []
    for pid in peer.tree():
        with suppress(OSError):
            if b"cli.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                collected.append(pid)
    return collected


LARGE = "a line of some length, that is one of many\n" * 8_000
HUGE = LARGE * 30


def test_a_large_answer_does_not_wait_behind_a_huge_one(gateway: Gateway) -> None:
    limits = {**QUICK, "call_timeout_seconds": 120.0}
    peer = gateway({"other": script("upstream"), "good": script("upstream")}, gateway=limits)
    peer.wait_for_tools("other__echo", "good__echo")
    huge = peer.start("tools/call", {"name": "other__echo", "arguments": {"text": HUGE}})
    eventually(lambda: bool(workers(peer)), 120)
    assert 'key="' in everything(peer.call("good__echo", 120, text=LARGE))
    assert huge not in peer._replies
    peer.send({"method": "notifications/cancelled", "params": {"requestId": huge}})
    assert 'key="' in everything(peer.call("good__echo", 120, text=LARGE + "once more"))


def test_a_large_answer_survives_the_death_of_its_worker(gateway: Gateway) -> None:
    """The agent gets the beginning of the result, and a key with which it can read the rest."""
    limits = {**QUICK, "call_timeout_seconds": 120.0}
    peer = gateway({"good": script("upstream")}, gateway=limits)
    peer.wait_for_tools("good__echo")
    peer.call("good__echo", 120, text=LARGE)
    id = peer.start("tools/call", {"name": "good__echo", "arguments": {"text": LARGE * 4}})
    killed = workers(peer)
    assert killed
    for worker in killed:
        os.kill(worker, signal.SIGKILL)
    assert 'key="' in everything(peer.reply(id, 240)["result"])


CAP_MB = 64
ENDLESS = r"""
import json, sys
def say(i, body):
    sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (json.dumps(i), body))
    sys.stdout.flush()
TOOLS = ",".join('{"name":"%s","inputSchema":{"type":"object"}}' % n for n in ("big", "ok"))
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        say(m["id"], '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
            '"serverInfo":{"name":"b","version":"1"}}')
    elif m.get("method") == "tools/list":
        say(m["id"], '{"tools":[%s]}' % TOOLS)
    elif m.get("method") == "tools/call" and m["params"]["name"] == "ok":
        say(m["id"], '{"content":[{"type":"text","text":"fine"}]}')
    elif m.get("method") == "tools/call":
        out = sys.stdout.buffer
        head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"'
        out.write(head % m["id"])
        for _ in range(m["params"]["arguments"]["mb"]):
            out.write(b"0123456789abcdef" * 65536)
        out.write(b'"}]}}\n')
        out.flush()
"""


def large_line(gateway: Gateway, tmp_path: Path, megabytes: int) -> float:
    """Let a server send a line over the limit. Returns the seconds until its call fails. The memory
    in use stays bounded, and the server can be used again.
    """
    code = tmp_path / "endless.py"
    code.write_text(ENDLESS, encoding="utf-8")
    limits = {"call_timeout_seconds": 300.0}
    servers = {"big": [sys.executable, str(code)], "good": script("upstream")}
    peer = gateway(servers, gateway=limits)
    peer.wait_for_tools("big__big", "good__echo")
    usual, before = plain_call(peer), peak_mb(peer.process.pid)
    began = time.perf_counter()
    params = {"name": "big__big", "arguments": {"mb": megabytes}}
    message = complaint(peer.ask("tools/call", params, 120))
    took = time.perf_counter() - began
    assert "over the limit" in message
    assert "'big'" in message
    assert plain_call(peer, times=5) <= 0.2 + 10 * usual
    assert everything(peer.call("big__ok", 300)) == "fine"
    assert peak_mb(peer.process.pid) - before < CAP_MB + 60
    return took


def test_a_line_over_the_limit_costs_no_more_than_the_limit(
    gateway: Gateway, tmp_path: Path
) -> None:
    assert large_line(gateway, tmp_path, 200) < 60


@pytest.mark.slow
def test_a_gigabyte_in_one_line(gateway: Gateway, tmp_path: Path) -> None:
    assert large_line(gateway, tmp_path, 1000) < 5


def test_after_a_crash_a_server_is_back_within_two_seconds(gateway: Gateway) -> None:
    """Twice the time that the first start took on this machine is added to the two seconds."""
    began = time.perf_counter()
    peer = gateway({"bad": script("odd")})
    peer.wait_for_tools("bad__ok")
    first_start = time.perf_counter() - began
    complaint(peer.ask("tools/call", {"name": "bad__die", "arguments": {}}))
    began = time.perf_counter()
    while "result" not in (
        reply := peer.ask("tools/call", {"name": "bad__ok", "arguments": {}})
    ) or (reply["result"].get("isError")):
        assert time.perf_counter() - began < 60
    assert time.perf_counter() - began <= 2.0 + 2 * first_start


def test_a_question_without_a_call_goes_to_the_only_client(
    home: Path, environment: dict, tmp_path: Path
) -> None:
    """A server asks while no call is in flight; on stdio, there is one client that can answer."""
    write_config(home, {"talk": script("talk", "--era", "legacy")})
    serve = [sys.executable, "-m", "upwell", "serve"]
    with Agent(serve, env=environment, cwd=tmp_path, errors=tmp_path / "stderr") as peer:
        peer.hello()
        peer.wait_for_tools("talk__seen")
        peer.send({"method": "notifications/vendor/ask"})
        peer.wait_until_asked("roots/list", 30)
        eventually(lambda: bool(later(peer)))
        assert later(peer) == [{"roots": [{"uri": "file:///work", "name": "work"}]}]


def later(peer: Peer) -> list:
    return list(json.loads(text_of(peer.call("talk__seen")))["later"])
