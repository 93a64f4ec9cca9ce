"""A server at an address, behind `upwell wrap --url`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import listening
from tests.doors.hooked import House
from tests.doors.peer import Peer, processes, text_of, wait_gone
from tests.doors.test_wrap import silent
from tests.doors.wrapped import WRAP

REMOTE = WRAP[:-1]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return silent(tmp_path)


def remote(house: House, url: str, *options: str, modern: bool = False) -> Agent:
    return Agent(
        [*REMOTE, "--url", url, *options],
        env=house.environment,
        cwd=house.project,
        errors=house.project.parent / "stderr",
        modern=modern,
    )


@pytest.fixture
def web(house: House) -> Iterator[Peer]:
    house.environment["WEB_TOKEN"] = "t0k3n"
    header = "Authorization: Bearer ${WEB_TOKEN}"
    with listening("web") as url, remote(house, url, "--header", header) as agent:
        agent.hello()
        yield agent


def test_headers_session_and_bytes_are_the_servers_own(web: Peer) -> None:
    headers = json.loads(text_of(web.call("headers")))
    assert headers["Authorization"] == "Bearer t0k3n"
    assert headers["mcp-session-id"].startswith("session-")
    assert b'{"content":[],"x":1.10,"y":1E400,"z":[1.0]}' in web.call_raw("exact")


def test_events_broken_streams_and_refusals_arrive(web: Peer) -> None:
    assert text_of(web.call("events")) == "by event"
    assert web.notifications[-1]["params"] == {"level": "info", "data": 1.10}
    assert text_of(web.call("broken")) == "in the end"
    refused = web.ask("tools/call", {"name": "refuse", "arguments": {}})
    assert "503" in refused["error"]["message"]
    assert text_of(web.call("echo", text="after")) == "after"


def test_it_ends_with_the_agent_and_leaves_nothing(web: Peer) -> None:
    tree = processes(web.process.pid)
    web.process.stdin.close()  # type: ignore[union-attr]
    assert web.process.wait(15) == 0
    assert wait_gone(tree, 5) == []


def test_a_server_that_is_not_there_is_named_and_ends_the_relay(house: House) -> None:
    with remote(house, "http://127.0.0.1:1/mcp") as agent:
        agent.start("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        assert agent.process.wait(30) == 1
        assert "127.0.0.1:1" in agent.stderr()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--url", "ftp://x"], "http"),
        (["--url", "http://127.0.0.1:1", "--header", "A: ${NOT_SET}"], "NOT_SET"),
        (["--url", "http://127.0.0.1:1", "--", "cat"], "one of"),
        (["--nothing", "x"], "--nothing"),
        ([], "one of"),
    ],
)
def test_wrong_use_is_one_line(house: House, options: list[str], reason: str) -> None:
    done = subprocess.run(
        [*REMOTE, *options], env=house.environment, input=b"", capture_output=True, timeout=30
    )
    assert done.returncode in (1, 2)
    assert reason in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_declared_arguments_are_sent_in_headers(house: House) -> None:
    with listening("mirror") as url, remote(house, url, modern=True) as agent:
        agent.tools()
        seen = json.loads(text_of(agent.call("where", region="é west", place={"zone": 7})))
        assert (seen["mcp-param-region"], seen["mcp-param-zone"]) == (
            "=?base64?w6kgd2VzdA==?=",
            "7",
        )
