"""`upwell serve --tools`, the server that `setup` adds to each agent, started by the launcher."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import write_config
from tests.doors.hooked import House
from tests.doors.peer import text_of
from upwell.ground.files import Home
from upwell.hook import control
from upwell.hook.control import daemon_at, end

FEW = ["read_more", "memory_search", "memory_get", "add_memory", "delete_memory"]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    control.write_launchers(Home(house.home))
    yield house
    if daemon := daemon_at(str(house.home)):
        assert end(daemon)


def tools(house: House) -> Agent:
    command = [str(house.home / "bin" / "upwell"), "serve", "--tools"]
    return Agent(command, env=house.environment, cwd=house.project)


def names(agent: Agent) -> list[str]:
    return [tool["name"] for tool in agent.result("tools/list")["tools"]]


def test_five_tools_in_few_words(house: House) -> None:
    with tools(house) as agent:
        agent.hello()
        listed = agent.result("tools/list")["tools"]
        assert [tool["name"] for tool in listed] == FEW
        assert len(json.dumps(listed)) < 4_500
        note = text_of(agent.call("add_memory", content="The kiln cools for nine hours."))
        assert "nine hours" in text_of(agent.call("memory_get", id=note.split()[0]))
        assert "nine hours" in text_of(agent.call("memory_search", query="kiln cools"))
        agent.call("delete_memory", id=note.split()[0])
        gone = agent.call("memory_get", id=note.split()[0])
        assert gone["isError"], gone


def test_the_daemon_may_end_at_any_time(house: House) -> None:
    with tools(house) as agent:
        agent.hello()
        for _ in range(2):
            daemon = daemon_at(str(house.home))
            assert daemon
            assert end(daemon)
            assert names(agent) == FEW


def test_tools_can_be_added(house: House) -> None:
    write_config(house.home, {}, tools={"all": True})
    with tools(house) as agent:
        agent.hello()
        assert {"search_memory", "memory_context", "select_sections", *FEW} <= set(names(agent))


def test_odd_messages_get_one_error_each_or_nothing(house: House) -> None:
    lines = [
        b"{not json",
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
        b'{"jsonrpc":"2.0","id":"x","method":"resources/list"}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nothing"}}',
        b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"memory_get","arguments":[1]}}',
        b'{"jsonrpc":"2.0","id":9,"method":"ping","params":"%s"}' % (b"x" * 5_000_000),
        b'{"jsonrpc":"2.0","id":10,"method":"ping"}',
    ]
    done = subprocess.run(
        [str(house.home / "bin" / "upwell"), "serve", "--tools"],
        input=b"\n".join(lines) + b"\n",
        env=house.environment,
        capture_output=True,
        timeout=60,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [None, "x", 7, 8, 9, 10]
    assert [answer.get("error", {}).get("code") for answer in answers] == [
        *(-32700, -32601, -32602, -32602, -32603, None)
    ]


def test_without_upwell_a_wrapped_server_runs_alone(house: House) -> None:
    path = house.home / "bin" / "upwell"
    lines = path.read_text().splitlines()
    gone = [
        line.replace("python=", "python=/gone") if "python=" in line else line for line in lines
    ]
    path.write_text("\n".join(gone) + "\n")
    command = [str(path), "wrap", "--name", "up", "--", "printf", "%s|", "a b", "--", "c"]
    bare = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=bare, capture_output=True, timeout=20, check=True)
    assert done.stdout == b"a b|--|c|"
    done = subprocess.run([path, "serve", "--tools"], env=bare, capture_output=True, timeout=20)
    assert done.returncode == 127
    assert b"no longer" in done.stderr
