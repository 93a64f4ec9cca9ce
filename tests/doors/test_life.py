"""The life of a gateway: what its children see, and that none outlives it."""

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.doors.conftest import Gateway, script
from tests.doors.peer import Peer, text_of, wait_gone
from tests.doors.reading import complaint, everything


def child_of(peer: Peer) -> Mapping[str, object]:
    """The upstream's view of its own process."""
    peer.wait_for_tools("up__received")
    return dict(json.loads(text_of(peer.call("up__received"))))


def test_the_environment_of_a_child_is_an_allow_list(gateway: Gateway) -> None:
    canaries = {"UPWELL_CANARY": "a", "AWS_SECRET_ACCESS_KEY": "b", "CANARY_TOKEN": "c"}
    server = {
        "command": script("upstream")[0],
        "args": script("upstream")[1:],
        "env": {"GIVEN": "yes", "EMPTY": ""},
    }
    seen = child_of(gateway({"up": server}, env=canaries))["env"]
    assert isinstance(seen, dict)
    assert not set(canaries) & set(seen)
    assert seen["GIVEN"] == "yes"
    assert seen["EMPTY"] == ""
    assert seen["PATH"] == os.environ["PATH"]
    assert set(seen) <= {
        *("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "SHELL", "TERM", "TMPDIR"),
        *("TZ", "USER", "GIVEN", "EMPTY"),
    }


def test_add_passes_the_given_environment(gateway: Gateway, upwell: object) -> None:
    done = upwell("add", "up", "--env", "GIVEN=a=b", "--env", "OTHER=", "--", *script("upstream"))
    assert done.code == 0, done.err
    seen = child_of(gateway())["env"]
    assert isinstance(seen, dict)
    assert seen["GIVEN"] == "a=b"
    assert seen["OTHER"] == ""


SERVERS = {
    "up": script("upstream"),
    "deaf": script("odd"),
    "starting": script("odd", "--start", "silent"),
}


@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL", "end of input"])
def test_children_die_with_the_gateway(gateway: Gateway, end: str) -> None:
    peer = gateway(SERVERS)
    peer.wait_for_tools("up__echo", "deaf__hang")
    peer.start("tools/call", {"name": "deaf__hang", "arguments": {}})
    assert everything(peer.call("up__echo", text="here")) == "here"
    tree = peer.tree()
    assert len(tree) >= 4
    if end == "end of input":
        assert peer.process.stdin
        peer.process.stdin.close()
    else:
        os.kill(peer.process.pid, getattr(signal, end))
    code = peer.process.wait(30)
    assert wait_gone(tree, 20) == []
    if end == "end of input":
        assert code == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nobody watches elsewhere")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_processes_of_a_child_die_with_the_gateway(gateway: Gateway, end: str) -> None:
    """Even if they do not notice a closed input, and after a restart of their server."""
    started = f"sleep 1000 </dev/null & exec {shlex.join(script('upstream'))}"
    peer = gateway({"up": ["sh", "-c", started], "other": ["sh", "-c", started]})
    peer.wait_for_tools("up__received", "other__received")
    first = json.loads(text_of(peer.call("up__received")))["pid"]
    os.kill(first, signal.SIGKILL)
    while (again := peer.call("up__received")).get("isError"):
        time.sleep(0.1)
    assert json.loads(text_of(again))["pid"] != first
    tree = peer.tree()
    sleeping = [pid for pid in tree if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
    assert len(sleeping) == 2, tree
    os.kill(peer.process.pid, getattr(signal, end))
    peer.process.wait(30)
    assert wait_gone(tree, 20) == []


def test_a_server_that_will_not_end_does_not_delay_a_host_that_sends_a_signal(
    gateway: Gateway,
) -> None:
    """A host may kill the gateway half a second after the signal. If its input ends instead, the
    gateway has more time for its servers."""
    peer = gateway(
        {"stubborn": ["sh", "-c", f"trap '' TERM; {shlex.join(script('upstream'))}; sleep 60"]}
    )
    peer.wait_for_tools("stubborn__echo")
    tree = peer.tree()
    began = time.monotonic()
    os.kill(peer.process.pid, signal.SIGTERM)
    assert peer.process.wait(30) == 0
    assert time.monotonic() - began < 3.0, "two steps of two seconds each were waited for"
    assert wait_gone(tree, 20) == []


def test_nothing_but_messages_on_stdout(gateway: Gateway) -> None:
    peer = gateway({"up": script("upstream"), "gone": ["/nonexistent/server"]})
    peer.wait_for_tools("up__echo")
    peer.call("up__echo", text="x")
    peer.ask("tools/call", {"name": "gone__x", "arguments": {}}, 10)
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in peer.lines)


BAD_LINES = [
    b"hello\n",
    b"\n",
    b"\xff\xfe\n",
    b"[]\n",
    b"42\n",
    b"{\n",
    b'{"jsonrpc":"2.0"}\n',
    b'{"jsonrpc":"2.0","method":5}\n',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n',
    b'{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}\n',
    b'{"jsonrpc":"2.0","method":"notifications/unknown","params":null}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}\n',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never"}}\n',
    b'{"jsonrpc":"2.0","id":"nobody-asked","result":{}}\n',
    b"[" * 100_000 + b"\n",
    b'{"jsonrpc":"2.0","method":"x","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n",
    b"x" * 3_000_000 + b"\n",
]


@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
def test_a_malformed_line_of_the_agent_is_survived(gateway: Gateway, line: bytes) -> None:
    peer = gateway({})
    peer.send_bytes(line)
    id = peer.start("ping")
    while True:
        message = json.loads(peer.line())
        if message.get("id") == id:
            assert message["result"] == {}
            return


@pytest.mark.parametrize("id", ['"a string"', '""', "0", "-1", "12345678901234567890123", '"é"'])
def test_ids_come_back_as_they_were(gateway: Gateway, id: str) -> None:
    peer = gateway({})
    peer.send_bytes(f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}\n'.encode())
    line = peer.line()
    assert json.loads(line)["id"] == json.loads(id)


def test_a_wrong_setting_is_reported_once_and_costs_only_itself(
    gateway: Gateway, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("[surface]\nmax_cuont = 3\n")
    peer = gateway()
    assert peer.ask("tools/list", {}, 10)["result"]["tools"]
    assert peer.close() == 0
    (complaint_line,) = peer.stderr().splitlines()
    assert "max_cuont" in complaint_line
    assert "max_count" in complaint_line


def test_a_configuration_that_is_not_toml(gateway: Gateway, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_bytes(b"[server.x\ncommand = \xff")
    peer = gateway()
    assert "config.toml" in complaint(peer.ask("tools/list", {}, 10))
    assert peer.close() == 1
    assert "config.toml" in peer.stderr()
    assert "Traceback" not in peer.stderr()


def test_a_configuration_that_is_not_toml_is_reported_to_a_modern_agent_too(
    gateway: Gateway, home: Path
) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_bytes(b"[server.x\ncommand = \xff")
    peer = gateway(modern=True, hello=False)
    assert "config.toml" in complaint(peer.ask("server/discover", {}, 10))
    assert peer.close() == 1


def test_many_calls_at_once_are_not_mixed_up(gateway: Gateway) -> None:
    peer = gateway({"a": script("upstream"), "b": script("upstream")})
    peer.wait_for_tools("a__echo", "b__echo")
    asked = {}
    for n in range(100):
        arguments = {"text": f"number {n}"}
        name = ("a", "b")[n % 2] + "__echo"
        asked[n] = peer.start("tools/call", {"name": name, "arguments": arguments})
    for n, id in asked.items():
        assert everything(peer.reply(id)["result"]) == f"number {n}"


def test_a_cancelled_call_reaches_the_server(gateway: Gateway, tmp_path: Path) -> None:
    log = tmp_path / "upstream.log"
    peer = gateway({"up": script("upstream", "--log", str(log))})
    peer.wait_for_tools("up__slow")
    id = peer.start("tools/call", {"name": "up__slow", "arguments": {"seconds": 2}})
    end = time.monotonic() + 30
    while b'"slow"' not in log.read_bytes():
        assert time.monotonic() < end, "the server was not called"
        peer.drain(0.02)
    peer.send({"method": "notifications/cancelled", "params": {"requestId": id}})
    assert everything(peer.call("up__echo", text="on")) == "on"
    while b"notifications/cancelled" not in log.read_bytes():
        assert time.monotonic() < end, "the server was not told"
        peer.drain(0.05)
    peer.drain(2.5)
    assert id not in peer._replies


def test_the_files_of_a_home_are_private(gateway: Gateway, home: Path) -> None:
    peer = gateway({"up": script("upstream")})
    peer.wait_for_tools("up__big_json")
    peer.call("up__big_json")
    assert home.stat().st_mode & 0o777 == 0o700
    for path in home.rglob("*"):
        if path.is_file() and path.name != "config.toml":
            assert path.stat().st_mode & 0o077 == 0, path
