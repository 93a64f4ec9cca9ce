"""An agent that does everything wrong: the gateway answers every request exactly once, survives
everything else, and goes on serving.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer, text_of, wait_gone
from tests.doors.reading import complaint, everything
from tests.doors.test_soak import rss_mb

PATIENCE = 30.0
FIRST = {
    "ping": '{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "list": '{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    "call": '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo"}}',
    "unknown": '{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    "odd params": '{"jsonrpc":"2.0","id":1,"method":"initialize","params":[1]}',
    "no params": '{"jsonrpc":"2.0","id":1,"method":"initialize"}',
    "odd version": '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":7}}',
    "marked": '\ufeff{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "no version": '{"id":1,"method":"ping"}',
    "wrong version": '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "noise before": 'Hello there\n\n\x00\x01\n{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "a batch": '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    "twice": '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
}


def heard(peer: Peer, wanted: object) -> dict:
    """The first message with that id; earlier messages are skipped."""
    while True:
        message = json.loads(peer.line(PATIENCE))
        if message.get("id") == wanted:
            return message


@pytest.mark.parametrize("first", FIRST)
def test_any_first_message_is_answered(gateway: Gateway, first: str) -> None:
    """No handshake took place, and none is needed."""
    peer = gateway({"up": script("upstream")}, hello=False)
    peer.send_bytes(FIRST[first].encode() + b"\n")
    reply = heard(peer, 1)
    assert ("result" in reply) != ("error" in reply)
    peer.send_bytes(b'{"jsonrpc":"2.0","id":"on","method":"ping"}\n')
    assert heard(peer, "on")["result"] == {}


@pytest.mark.parametrize("said", [b"", b"\n", b'{"jsonrpc":"2.0","id":1,"meth', b"\xff\xfe"])
def test_a_client_that_leaves_at_once_leaves_no_process(gateway: Gateway, said: bytes) -> None:
    peer = gateway({"up": script("upstream")}, hello=False)
    peer.send_bytes(said)
    assert peer.close(PATIENCE) == 0
    assert "Traceback" not in peer.stderr()


IDS = [
    *('"\\u00e9"', '"a\\/b"', '"quote \\" and \\\\ slash"', '"\\ud83d"', '"\\n"', "1.5", "1e3"),
    json.dumps("x" * 1000),
    "9" * 500,
]


@pytest.mark.parametrize("id", IDS, ids=range(len(IDS)))
def test_any_id_comes_back_as_it_was_sent(gateway: Gateway, id: str) -> None:
    peer = gateway({})
    peer.send_bytes(f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}\n'.encode())
    assert b'"id":%b,' % id.encode() in peer.line(PATIENCE)


@pytest.mark.parametrize("id", [json.dumps("x" * 5000), "[1]", "{}", "true", "NaN", "-Infinity"])
def test_an_invalid_id_is_refused(gateway: Gateway, id: str) -> None:
    peer = gateway({})
    peer.send_bytes(f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}\n'.encode())
    reply = json.loads(peer.line(PATIENCE))
    assert reply["id"] is None
    assert reply["error"]["code"] in (-32600, -32700)
    assert peer.result("ping") == {}


def test_one_id_for_two_requests_gets_two_answers(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    call = {"name": "up__slow", "arguments": {"seconds": 1}}
    line = {"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": call}
    peer.send_bytes((json.dumps(line) + "\n").encode() * 2)
    answers = [json.loads(peer.line(PATIENCE)) for _ in range(2)]
    assert [(answer["id"], text_of(answer["result"])) for answer in answers] == [
        ("same", "slept")
    ] * 2


def test_a_cancellation_ends_every_request_of_its_id(gateway: Gateway, tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    peer = gateway({"up": script("upstream", "--log", str(log))})
    peer.wait_for_tools("up__slow")
    call = {"name": "up__slow", "arguments": {"seconds": 600}}
    line = {"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": call}
    peer.send_bytes((json.dumps(line) + "\n").encode() * 2)
    eventually(peer, lambda: log.read_bytes().count(b'"tools/call"') == 2)
    peer.send({"method": "notifications/cancelled", "params": {"requestId": "same"}})
    eventually(peer, lambda: log.read_bytes().count(b'"notifications/cancelled"') == 2)
    assert everything(peer.call("up__echo", text="on")) == "on"
    assert log.read_bytes().count(b'"notifications/cancelled"') == 2


def eventually(peer: Peer, what: Callable[[], bool], deadline: float = PATIENCE) -> None:
    end = time.monotonic() + deadline
    while not what():
        assert time.monotonic() < end, "it never came true"
        peer.drain(0.02)


CANCELLED = [
    '{"requestId":"never"}',
    '{"requestId":999}',
    '{"requestId":null}',
    '{"requestId":[1]}',
    "{}",
    "[]",
    "null",
    '"x"',
    '{"requestId":' + "[" * 50_000 + "]" * 50_000 + "}",
]


def test_cancellations_of_unknown_requests(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    for params in CANCELLED:
        line = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}\n'
        peer.send_bytes(line.encode())
    assert everything(peer.call("up__echo", PATIENCE, text="on")) == "on"


METHODS = [
    *("tools/list", "tools/call", "prompts/list", "prompts/get", "resources/list"),
    *("resources/read", "resources/subscribe", "resources/unsubscribe", "logging/setLevel"),
    *("resources/templates/list", "completion/complete", "ping", "tasks/get", "server/discover"),
    *("subscriptions/listen", "initialize", "", "no/such/method", "x" * 100_000),
]
PARAMS = [
    *("null", "[]", "5", '"x"', "true", "{}", '{"name":5,"uri":5,"cursor":5,"level":5,"ref":5}'),
    '{"name":{},"uri":[],"cursor":{},"level":{},"ref":{"type":7},"argument":[]}',
    '{"name":"up__echo","arguments":[1],"uri":"","cursor":"","level":"","ref":{},"argument":{}}',
    '{"name":"upwell__read_more","arguments":{"key":7,"offset":"x"},"uri":"upwell://nothing"}',
    '{"name":"upwell__memory_search","arguments":{"query":null},"uri":"upwell://memory/%00"}',
    '{"name":"up__echo","_meta":5}',
    '{"name":"up__echo","_meta":{"progressToken":{"a":1},"io.modelcontextprotocol/x":[]}}',
    '{"name":"up__echo","arguments":{"x":%s}}' % ("[" * 20_000 + "]" * 20_000),
    '{"name":"up__echo","name":"up__slow","arguments":{},"arguments":{"seconds":0}}',
]


def test_every_method_with_every_kind_of_params_is_answered_once(gateway: Gateway) -> None:
    """The peer fails on a second answer to one id."""
    peer = gateway({"up": script("upstream"), "talk": script("talk", "--era", "legacy")})
    peer.wait_for_tools("up__echo", "talk__seen")
    asked = []
    for method in METHODS:
        for params in PARAMS:
            peer._ids += 1
            line = f'"id":{peer._ids},"method":{json.dumps(method)},"params":{params}'
            peer.send_bytes(f'{{"jsonrpc":"2.0",{line}}}\n'.encode())
            asked.append((peer._ids, method, params[:80]))
    for id, method, params in asked:
        message = peer.reply(id, PATIENCE)
        failed = message.get("error", {}).get("message", "")
        assert "upwell failed" not in failed, (method, params, failed)
    assert everything(peer.call("up__echo", PATIENCE, text="on")) == "on"


def test_a_burst_of_a_thousand_requests(gateway: Gateway) -> None:
    """All are sent before the first answer is read."""
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    peer.deadline = 120
    params = [{"name": "up__echo", "arguments": {"text": str(n)}} for n in range(1000)]
    ids = [peer.start("tools/call", param) for param in params]
    for n, id in enumerate(ids):
        assert everything(peer.reply(id)["result"]) == str(n)


def flood(peer: Peer, line: bytes, most: int) -> int:
    """Send without reading until the other side stops reading. Returns the number of bytes."""
    assert peer.process.stdin
    pipe = peer.process.stdin.fileno()
    os.set_blocking(pipe, False)
    sent, data, idle = 0, line * 500, 0
    while sent < most and idle < 25:
        try:
            sent += os.write(pipe, data)
            idle = 0
        except BlockingIOError:
            time.sleep(0.1)
            idle += 1
    os.set_blocking(pipe, True)
    return sent


@pytest.mark.parametrize("method", ["ping", "tools/list"])
def test_a_client_that_never_reads_costs_a_bounded_amount_of_memory(
    gateway: Gateway, method: str
) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    before = rss_mb(peer.process.pid)
    line = b'{"jsonrpc":"2.0","id":7,"method":"%b"}\n' % method.encode()
    most = 12_000_000
    assert flood(peer, line, most) < most, "it read on and on"
    assert rss_mb(peer.process.pid) - before < 150
    tree = peer.tree()
    assert peer.process.stdin
    peer.process.terminate()
    peer.process.wait(PATIENCE)
    assert wait_gone(tree, PATIENCE) == []


def test_a_client_that_leaves_during_calls_leaves_no_process(
    gateway: Gateway, tmp_path: Path
) -> None:
    peer = gateway({"up": script("upstream"), "bad": script("odd")})
    peer.wait_for_tools("up__echo", "bad__hang")
    for name in ("bad__hang", "up__slow", "up__big_json", "upwell__memory_search"):
        peer.start("tools/call", {"name": name, "arguments": {"seconds": 600, "query": "x"}})
    tree = peer.tree()
    assert peer.close(PATIENCE) == 0
    assert wait_gone(tree, PATIENCE) == []
    assert "Traceback" not in peer.stderr()


def test_a_client_that_closes_only_its_reading_side(gateway: Gateway) -> None:
    """Answers cannot be delivered; when the client's other side closes too, the gateway ends."""
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    tree = peer.tree()
    assert peer.process.stdout
    peer.process.stdout.close()
    for _ in range(50):
        peer.start("tools/call", {"name": "up__echo", "arguments": {"text": "x" * 1000}})
    assert peer.process.stdin
    peer.process.stdin.close()
    peer.process.wait(PATIENCE)
    assert wait_gone(tree, PATIENCE) == []
    assert "Traceback" not in peer.stderr()


def test_a_line_over_the_limit_is_refused_with_its_size(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__echo")
    reply = peer.ask(
        "tools/call", {"name": "up__echo", "arguments": {"text": "x" * 70_000_000}}, PATIENCE
    )
    assert "over the limit" in complaint(reply)
    assert everything(peer.call("up__echo", PATIENCE, text="on")) == "on"


def test_a_line_in_two_halves(gateway: Gateway) -> None:
    peer = gateway({})
    data = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xc3\xa9"}}\n'
    for at in range(len(data)):
        peer.send_bytes(data[at : at + 1])
    assert heard(peer, 1)["result"] == {}


def test_malformed_json_in_a_request_never_reaches_a_server(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream")}, gateway={"call_timeout_seconds": 600.0})
    peer.wait_for_tools("up__echo")
    for arguments in ('{"text":nonsense}', '{"text":[1,]}', '{"a":{"b":1 2}}', '{"a":}'):
        answer = json.loads(peer.call_raw("up__echo", arguments, PATIENCE))
        assert answer["error"]["code"] in (-32602, -32600, -32700), answer
    assert text_of(peer.call("up__echo", PATIENCE, text="on")) == "on"
