"""What upwell does to the results of a wrapped server, as the agent receives them."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.agent import Agent
from tests.doors.conftest import script
from tests.doors.hooked import House
from tests.doors.peer import LEGACY, Peer, exact, member
from tests.doors.reading import everything, texts
from tests.doors.servers.data import big_markdown
from tests.doors.wrapped import direct, wrapped
from upwell.hook.control import daemon_at
from upwell.hook.daemon import LOOK_SECONDS

FACT = "The settlement job in src/billing/settle.py runs before midnight UTC, or refunds double."
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
UPSTREAM = script("upstream")
KEPT = '[tool."upstream__structured"]\ncompress = {strategy = "none"}\n'


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("results"))
    other = [{"text": f"The {word} is checked every spring."} for word in ("mast", "rope", "keel")]
    house.keep([{"text": FACT, "paths": ["src/billing/settle.py"]}, *other])
    (house.home / "config.toml").write_text(KEPT)
    house.start()
    yield house
    house.stop()


@pytest.fixture
def agent(house: House) -> Iterator[Agent]:
    with wrapped(house, UPSTREAM) as agent:
        agent.hello()
        agent.tools()
        yield agent


def until(found: Callable[[], bool], what: str) -> None:
    """A busy machine may take longer than a call waits, so try again."""
    for _ in range(20):
        if found():
            return
    raise AssertionError(what)


def shortened(agent: Peer, tool: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_shorter() -> bool:
        found.append(agent.call(tool))
        return "[upwell] Shortened" in everything(found[-1])

    until(is_shorter, f"the result of {tool} was not shortened")
    return found[-1]


def test_a_long_result_is_shortened_and_its_original_can_be_read(
    agent: Agent, house: House
) -> None:
    result = shortened(agent, "big_markdown")
    assert len(everything(result)) < len(big_markdown()) / 3
    key = re.search(r"upwell read ([0-9a-f]{16})`", everything(result))
    assert key
    assert house.upwell("read", key[1]).rstrip("\n") == big_markdown().rstrip("\n")


def test_the_rest_of_a_shortened_message_stays(agent: Agent, house: House) -> None:
    shortened(agent, "big_mixed")
    ours = exact(agent.lines[-1])
    with direct(house, UPSTREAM) as peer:
        peer.hello()
        theirs = exact(peer.call_raw("big_mixed"))
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    assert member(ours, "result", "content", 1) == member(theirs, "result", "content", 1)


def test_a_tool_that_may_be_shortened_has_no_output_schema(agent: Agent) -> None:
    tools = agent.tools()
    assert "outputSchema" not in tools["structured_big"]
    assert "outputSchema" in tools["structured"]
    assert "structuredContent" not in shortened(agent, "structured_big")
    assert "structuredContent" in agent.call("structured")


def test_while_an_output_schema_is_listed_its_tool_is_not_shortened(house: House) -> None:
    """The list of another relay does not count: this agent has not asked for it."""
    set_config(house, '[compress]\nstrategy = "none"\n')
    try:
        with wrapped(house, UPSTREAM) as agent:
            agent.hello()
            assert "outputSchema" in agent.tools()["structured_big"]
            set_config(house, KEPT)
            shortened(agent, "big_markdown")
            assert "structuredContent" in agent.call("structured_big")
    finally:
        set_config(house, KEPT)


def set_config(house: House, text: str) -> None:
    """Write the configuration, and wait until the daemon has noticed."""
    (house.home / "config.toml").write_text(text)
    time.sleep(LOOK_SECONDS + 1.5)


def test_a_memory_comes_with_the_file_that_it_is_about(house: House) -> None:
    with wrapped(house, UPSTREAM) as agent:
        agent.hello()
        agent.tools()
        results: list[dict[str, Any]] = []

        def is_said() -> bool:
            reason = f"look {len(results)}"
            results.append(agent.call("read", path="src/billing/settle.py", reason=reason))
            return FACT in everything(results[-1])

        until(is_said, "the memory was not said")
        first, *rest = texts(results[-1])
        json.loads(first)
        assert FACT in "".join(rest)
        assert results[-1]["_meta"]["surfacing_id"] in rest[-1]
        assert "upwell read" in rest[-1], "the agent may lack our tools"
        assert "mark=" not in rest[-1]
        again = agent.call("read", path="src/billing/settle.py", reason="again")
        assert FACT not in everything(again), "told once"


def test_what_a_wrapped_server_said_is_not_said_again_by_a_hook(house: House) -> None:
    """The agent's process is that of the hooks, so both belong to one session."""
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "one", "cwd": str(house.project)}
    prompt = "When does the settlement job in src/billing/settle.py have to run, and why?"
    house.hook("claude", event={**event, "prompt": "Let us begin"})
    with wrapped(house, UPSTREAM) as agent:
        client = {"name": "claude-code", "version": "2.1"}
        agent.result(
            "initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
        )
        agent.tools()
        numbers = iter(range(100))

        def is_said() -> bool:
            reason = f"look {next(numbers)}"
            return FACT in everything(
                agent.call("read", path="src/billing/settle.py", reason=reason)
            )

        until(is_said, "the memory was not said")
    assert FACT not in json.dumps(house.hook("claude", event={**event, "prompt": prompt}).json)
    other = {**event, "session_id": "two", "prompt": prompt}
    assert FACT in json.dumps(house.hook("claude", event=other).json), (
        "another session was not told"
    )


def test_nothing_is_said_beside_a_write(agent: Agent) -> None:
    for _ in range(3):
        result = agent.call("write_note", text=FACT, path="src/billing/settle.py")
        assert texts(result) == ["written"]


def test_a_long_result_with_a_secret_is_not_shortened(house: House) -> None:
    """Its original would stay in the daemon's memory, where no command can read it."""
    body = f"{big_markdown()}\ntoken = {SECRET}\n"
    result = json.dumps({"id": 1, "result": {"content": [{"type": "text", "text": body}]}})
    with wrapped(house, ["cat"]) as agent:
        agent.send({"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {}}})
        agent.line()
        agent.send_bytes(result.encode() + b"\n")
        assert agent.line() == result.encode()


def test_other_messages_pass_a_result_that_waits(house: House) -> None:
    daemon = daemon_at(str(house.home))
    assert daemon
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with wrapped(house, UPSTREAM) as agent:
            agent.hello()
            began = time.monotonic()
            large, small = (
                agent.start("tools/call", {"name": name, "arguments": {}})
                for name in ("big_markdown", "empty")
            )
            ping = agent.start("ping")
            order = [json.loads(agent.line())["id"] for _ in range(3)]
            assert order == [ping, small, large]
            assert time.monotonic() - began < 8
            whole = json.loads(agent.lines[-1])["result"]
            assert everything(whole) == big_markdown()
            assert large
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_a_daemon_that_hangs_is_not_asked_for_long(house: House) -> None:
    daemon = daemon_at(str(house.home))
    assert daemon
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        with wrapped(house, UPSTREAM) as agent:
            agent.hello()
            began = time.monotonic()
            for _ in range(30):
                agent.call("empty")
            assert time.monotonic() - began < 3
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def test_a_pause_leaves_results_alone(house: House, agent: Agent) -> None:
    shortened(agent, "big_markdown")
    house.upwell("off")
    try:
        assert everything(agent.call("big_markdown")) == big_markdown()
    finally:
        house.upwell("on")
    shortened(agent, "big_markdown")


def test_progress_arrives_before_its_result(agent: Agent) -> None:
    agent.full("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": 1}})
    methods = [json.loads(line).get("method") for line in agent.lines[-4:]]
    assert methods == ["notifications/progress"] * 3 + [None]


def test_a_crlf_stays_at_the_end_of_a_shortened_line(house: House, tmp_path: Path) -> None:
    body = {"content": [{"type": "text", "text": big_markdown()}]}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": body}).encode()
    with wrapped(house, ["cat"]) as agent:
        for _ in range(20):
            agent.send({"id": 1, "method": "tools/call", "params": {"name": "x", "arguments": {}}})
            agent.line()
            agent.send_bytes(line + b"\r\n")
            received = agent.line()
            assert received.endswith(b"\r")
            if received != line + b"\r":
                break
        assert b"Shortened from" in received
