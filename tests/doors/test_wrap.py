"""A client cannot tell a wrapped server from the server: all lines are compared byte for byte with
those of the server itself, with a daemon that answers and without one."""

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import script
from tests.doors.hooked import House
from tests.doors.peer import Peer
from tests.doors.wrapped import WRAP, direct, rss_mb, wrapped

Npm = Callable[..., list[str]]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A home with a few memories and a running daemon."""
    house = House(tmp_path_factory.mktemp("wrap"))
    house.keep([{"text": f"The {word} is checked every spring."} for word in ("mast", "rope")])
    house.start()
    yield house
    house.stop()


@pytest.fixture(params=["daemon", "no daemon"])
def place(request: Any, house: House, tmp_path: Path) -> House:
    return house if request.param == "daemon" else silent(tmp_path)


def silent(folder: Path) -> House:
    """A home whose daemon is said to be starting, but never answers."""
    house = House(folder)
    os.makedirs(house.place.folder, mode=0o700, exist_ok=True)
    Path(house.place.starting).touch()
    return house


REQUESTS: list[tuple[str, Mapping[str, Any]]] = [
    ("ping", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("nothing/here", {}),
    *(
        ("tools/call", {"name": name, "arguments": {}})
        for name in ("empty", "mixed", "numbers", "structured_list", "fail", "rpc_error", "nothing")
    ),
    ("tools/call", {"name": "echo", "arguments": {"text": 'héllo \ud83c\udf0a \x7f "quoted"'}}),
    ("tools/call", {"name": "echo", "arguments": {"text": "x" * 3_000}}),
    ("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}),
    ("tools/call", {"name": "add_tool", "arguments": {"name": "late"}}),
    ("tools/call", {"name": "late", "arguments": {}}),
    ("tools/call", {"arguments": []}),
    ("tools/call", {}),
]


def without_schemas(line: bytes) -> bytes:
    """A tool list as decision 13 wants it."""
    message = json.loads(line)
    for tool in message["result"]["tools"]:
        tool.pop("outputSchema", None)
    return json.dumps(message).encode()


def conversation(agent: Agent) -> list[bytes]:
    agent.hello()
    for method, params in REQUESTS:
        agent.ask(method, params)
    return agent.lines


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_all_lines_are_the_servers_own(place: House, era: str) -> None:
    command = script("upstream", "--era", era)
    options = {"modern": era == "modern"}
    with wrapped(place, command, **options) as ours, direct(place, command, **options) as theirs:
        pairs = list(zip(conversation(ours), conversation(theirs), strict=True))
    lists = [pair for pair in pairs if b'"outputSchema"' in pair[1]]
    assert [json.loads(ours) for ours, _ in lists] == [
        json.loads(without_schemas(theirs)) for _, theirs in lists
    ]
    assert lists
    assert [ours for ours, theirs in pairs if b'"outputSchema"' not in theirs] == [
        theirs for _, theirs in pairs if b'"outputSchema"' not in theirs
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_talkative_server_is_the_same(place: House, era: str) -> None:
    command = script("talk", "--era", era, "--name", "talk")
    options = {"modern": era == "modern"}

    def talk(agent: Agent) -> list[bytes]:
        agent.hello()
        agent.tools()
        for tool in ("sample", "elicit", "roots", "log", "change", "seen", "progress"):
            agent.full("tools/call", {"name": tool, "arguments": {}, "_meta": {"progressToken": 7}})
        for uri in ("talk://one", "talk://item/5", "talk://nothing"):
            agent.ask("resources/read", {"uri": uri})
        agent.ask("prompts/get", {"name": "hello", "arguments": {"who": "Ada"}})
        argument = {"name": "who", "value": "A"}
        reference = {"type": "ref/prompt", "name": "hello"}
        agent.ask("completion/complete", {"ref": reference, "argument": argument})
        return agent.lines

    with wrapped(place, command, **options) as ours, direct(place, command, **options) as theirs:
        assert talk(ours) == talk(theirs)


@pytest.mark.parametrize("server", ["everything", "memory", "filesystem"])
def test_official_servers_are_the_same(npm_servers: Npm, place: House, server: str) -> None:
    (place.project / "small.txt").write_text("short and sweet\n")
    command = npm_servers(server, *([place.project] if server == "filesystem" else []))
    calls: list[tuple[str, dict[str, Any]]] = {
        "everything": [("echo", {"message": "é"}), ("get-sum", {"a": 1, "b": 2.5})],
        "memory": [("read_graph", {}), ("open_nodes", {"names": ["x"]})],
        "filesystem": [
            ("read_text_file", {"path": str(place.project / "small.txt")}),
            ("list_directory", {"path": str(place.project)}),
            ("read_text_file", {"path": "/etc/shadow"}),
        ],
    }[server]

    def answers(agent: Peer) -> list[Any]:
        hello = agent.hello()
        listed = [agent.ask(f"{kind}/list") for kind in ("tools", "prompts", "resources")]
        for tool in listed[0]["result"]["tools"]:
            tool.pop("outputSchema", None)
        return [hello, *listed, *(agent.call(name, None, **args) for name, args in calls)]

    # Not an agent with roots, because a server may read a file before it has asked for them.
    with wrapped(place, command, Peer) as ours, direct(place, command, Peer) as theirs:
        assert answers(ours) == answers(theirs)


# `cat` is a server that says whatever the client wants it to.

CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":{}}}\n'
RESULT = b'{"result":{"content":[{"type":"text","text":"ok"}]},"jsonrpc":"2.0","id":%d}\n'
ODD = [
    b"\n",
    b"\r\n",
    b"not JSON\n",
    b"{\n",
    b'{"id":1,\n',
    b"\xff\xfe\x00\n",
    b"\xef\xbb\xbf" + RESULT % 1,
    b"[" + (RESULT % 1).strip() + b"," + (RESULT % 2).strip() + b"]\n",
    b"[" + (CALL % 1).strip() + b"," + (CALL % 2).strip() + b"]\n",
    CALL % 1,
    CALL % 1,
    RESULT % 1,
    RESULT % 1,
    (RESULT % 2).replace(b"\n", b"\r\n"),
    b'  {"id" : "a" , "method" : "tools/call", "params" : {"name":"x"} }\n',
    b'{"id":"a","result":{"content":[],"x":1.10,"x":1e2}}\n',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/list"}\n',
    b'{"jsonrpc":"2.0","id":3,"result":{"tools":"none"}}\n',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/list"}\n',
    b'{"jsonrpc":"2.0","id":4,"result":{"tools":[{"name":"t","n":1.10}]}}\n',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-1.0,"message":"no"}}\n',
    b'{"id":9,"method":"tools/call","params":' + b"[" * 5_000 + b"]" * 5_000 + b"}\n",
    b'{"id":9,"result":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}\n",
    b'{"method":"notifications/cancelled","params":{"requestId":1}}\n',
    b'{"id":1,"method":"sampling/createMessage"}\n',
]
"""No line here asks for anything that the relay does, so all of them pass as they are."""


@pytest.mark.parametrize("seed", range(3))
def test_any_bytes_pass_in_any_pieces(place: House, seed: int) -> None:
    source = random.Random(seed)
    lines = ODD + [CALL % 50] + [source.choice(ODD) for _ in range(200)] + [b"x" * 3_000_000]
    sent = b"".join(lines) + b'\n{"unfinished":'
    with open(place.project.parent / "wrap.stderr", "ab") as errors:
        running = subprocess.Popen(
            [*WRAP, "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=place.environment,
        )
    assert running.stdin
    if os.fork() == 0:
        at = 0
        while at < len(sent):
            size = source.choice((1, 5, 100, 4_096, 70_000))
            at += os.write(running.stdin.fileno(), sent[at : at + size])
        os._exit(0)
    running.stdin.close()
    assert running.stdout
    received = running.stdout.read()
    os.wait()
    ours, theirs = Counter(received.split(b"\n")), Counter(sent.split(b"\n"))
    assert (ours - theirs, theirs - ours) == (Counter(), Counter())
    assert running.wait(10) == 0
    running.stdout.close()


def test_a_client_that_does_not_read_stops_the_server_not_the_relay(place: House) -> None:
    with wrapped(place, ["cat"]) as agent:
        os.set_blocking(agent.process.stdin.fileno(), False)  # type: ignore[union-attr]
        line, sent = b'{"method":"n","params":"%s"}\n' % (b"x" * 100_000), 0
        while True:
            try:
                written = os.write(agent.process.stdin.fileno(), line)  # type: ignore[union-attr]
            except BlockingIOError:
                break
            sent += written
            if written < len(line):
                break
        assert sent < 10_000_000
        assert rss_mb(agent) < 20
        received = 0
        while received < sent // len(line):
            received += len(agent.line()) + 1 == len(line)


def test_the_relay_is_small(house: House) -> None:
    with wrapped(house, script("upstream")) as agent:
        agent.hello()
        agent.tools()
        for number in range(300):
            agent.call("say", None, text=f"call {number}")
        assert rss_mb(agent) < 20
        agent.call("big_markdown")
        assert rss_mb(agent) < 20
