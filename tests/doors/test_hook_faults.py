"""Whatever its input and the state of the daemon, the hook exits with 0 in time, with or without an
answer."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.doors.hook_events import HOSTS
from tests.doors.hooked import PATIENCE, QUICK, House
from upwell import __version__
from upwell.hook.client import TOOL_SECONDS
from upwell.hook.control import daemon_at
from upwell.hook.place import DaemonPlace

IN_TIME = dict.fromkeys(PATIENCE)
"""Unsets the generous deadlines, so that the default ones apply."""
FERRY = "The ferry timetable is published on Mondays by the harbour master"
MOST_SECONDS = TOOL_SECONDS + 3.0
"""The deadline, and some time to start Python on a busy machine."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("faults"))
    house.keep([{"id": "ferry", "text": FERRY}])
    house.keep(
        [
            {
                "id": f"tide-{number}",
                "text": f"The tide gauge number {number} of pier {word} reports in centimetres",
                "paths": [f"src/{word}_gauge.py"],
            }
            for number, word in enumerate(
                "oak elm ash fir yew bay fig nut gum box plum pear lime kiwi date".split()
            )
        ]
    )
    yield house
    house.stop()


def read_event(house: House, word: str) -> Mapping[str, object]:
    return HOSTS["claude"].tool(str(house.project), house.file(f"{word}_gauge.py"))


def prompt_event(house: House, session: str) -> Mapping[str, object]:
    """A prompt about the ferry only, so that no memory about a gauge is delivered by it."""
    prompt = HOSTS["claude"].prompt
    assert prompt is not None
    event = prompt(str(house.project), "Who publishes the ferry timetable on Mondays?")
    return {**event, "session_id": session}


def hostile(house: House) -> Mapping[str, bytes]:
    event = dict(read_event(house, "oak"))
    spelt = json.dumps(event).encode()
    return {
        "empty": b"",
        "spaces": b"   \n",
        "half": spelt[:90],
        "binary": bytes(range(256)) * 40,
        "not utf-8": spelt.replace(b"oak", b"\xff\xfe"),
        "a list": b"[]",
        "null": b"null",
        "deep": b'{"hook_event_name":"PostToolUse","tool_name":"Read","x":' + b"[" * 100_000,
        "10 MB": json.dumps({**event, "tool_response": "x" * 10_000_000}).encode(),
        "20 MB": b"x" * 20_000_000,
        "wrong types": json.dumps(
            {"hook_event_name": "PostToolUse", "tool_name": 7, "tool_input": [], "cwd": {}}
        ).encode(),
        "no input": json.dumps(
            {"hook_event_name": "PostToolUse", "tool_name": "Read", "tool_input": None}
        ).encode(),
        "names of others": json.dumps({**event, "session_id": "../../etc/passwd\n*"}).encode(),
        "long session": json.dumps({**event, "session_id": "s" * 100_000}).encode(),
        "paths of others": json.dumps(
            {**event, "cwd": "/proc/self/../../etc\0", "tool_input": {"file_path": "\0" * 500}}
        ).encode(),
        "surrogates": spelt.replace(b"oak", b"\\ud800"),
        "huge numbers": spelt.replace(b'"duration_ms": 12', b'"duration_ms": ' + b"9" * 5_000),
        "shell": json.dumps({**event, "tool_input": {"command": "$(touch /tmp/x); `id`"}}).encode(),
    }


CASES = (
    "empty,spaces,half,binary,not utf-8,a list,null,deep,10 MB,20 MB,wrong types,no input,"
    "names of others,long session,paths of others,surrogates,huge numbers,shell"
).split(",")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_hostile_events_do_no_harm(house: House, case: str, warm: bool) -> None:
    if warm:
        house.start()
    answer = house.hook("claude", event=hostile(house)[case], env=IN_TIME)
    assert isinstance(answer.json, dict)
    assert answer.seconds < MOST_SECONDS
    assert not Path("/tmp/x").exists()
    if warm:
        daemon = daemon_at(str(house.home))
        assert daemon is not None
        assert daemon.answers


@pytest.mark.parametrize("args", [(), ("nobody",), ("../x", "PostToolUse"), ("claude", "\n", "x")])
def test_odd_arguments_do_no_harm(house: House, args: tuple[str, ...]) -> None:
    assert house.hook(*args, event=read_event(house, "oak"), env=IN_TIME).json == {}


def test_a_daemon_that_is_killed_is_started_again(house: House) -> None:
    house.start()
    daemon = daemon_at(str(house.home))
    assert daemon is not None
    os.kill(daemon.pid, signal.SIGKILL)
    assert house.hook("claude", event=read_event(house, "elm")).json == {}
    assert house.daemon_answers(), "the hook did not start another daemon"
    assert "pier elm" in str(house.hook("claude", event=read_event(house, "elm")).json)
    again = daemon_at(str(house.home))
    assert again is not None
    assert again.pid != daemon.pid


def test_a_file_at_the_path_of_the_socket_is_replaced(house: House) -> None:
    house.start()
    os.unlink(house.place.socket)
    Path(house.place.socket).write_text("not a socket")
    assert house.hook("claude", event=read_event(house, "ash")).json == {}
    deadline = time.monotonic() + 30
    while not ((daemon := daemon_at(str(house.home))) and daemon.answers):
        assert time.monotonic() < deadline, "the daemon did not come back"
        house.hook("claude", event=read_event(house, "ash"))
        os.path.exists(house.place.starting) and os.utime(house.place.starting, (0, 0))
        time.sleep(0.3)
    assert "pier fir" in str(house.hook("claude", event=read_event(house, "fir")).json)


@pytest.mark.parametrize("way", ["deaf", "silent", "babbling", "short", "closing"])
def test_a_stalled_daemon_costs_no_more_than_the_deadline(house: House, way: str) -> None:
    house.stop()
    other = DaemonPlace(str(house.home))
    os.makedirs(other.folder, mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(other.socket)
    try:
        if way != "deaf":
            listening.listen(8)
            threading.Thread(target=_odd, args=(listening, way), daemon=True).start()
        Path(other.starting).touch()
        answer = house.hook("claude", event=read_event(house, "yew"), env=IN_TIME)
        assert isinstance(answer.json, dict)
        assert answer.seconds < MOST_SECONDS
    finally:
        listening.close()
        for path in (other.socket, other.starting):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _odd(listening: socket.socket, way: str) -> None:
    try:
        peer, _ = listening.accept()
        peer.recv(100)
        if way == "babbling":
            peer.sendall(b"ok many\n{}" + b"x" * 100_000)
        elif way == "short":
            peer.sendall(b'ok 99\n{"a":')
        elif way == "silent":
            time.sleep(5)
        peer.close()
    except OSError:
        return


def test_a_newer_client_ends_an_older_daemon(house: House) -> None:
    house.start()
    major = int(__version__.split(".")[0]) + 1
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(house.place.socket)
        peer.sendall(f"upwell/1 {major}.0.0 claude Stop 200 1 2\n{{}}".encode())
        assert peer.recv(100).startswith(b"ok ")
    deadline = time.monotonic() + 20
    while daemon_at(str(house.home)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_many_hooks_at_once_start_one_daemon_and_surface_a_memory_once(house: House) -> None:
    house.stop()
    body = json.dumps(prompt_event(house, "many")).encode()
    running = [
        subprocess.Popen(
            [*QUICK, host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=house.environment,
            cwd=house.project,
        )
        for host in ("claude", "codex") * 4
    ]
    done = [process.communicate(body, timeout=30) for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    assert {err for _, err in done} == {b""}
    answers = [out for out, _ in done if FERRY.encode() in out]
    assert len(answers) == 1
    assert house.daemon_answers()
    assert FERRY not in str(house.hook("claude", event=prompt_event(house, "many")).json)


@pytest.mark.parametrize(
    "env",
    [
        {"HOME": None, "UPWELL_HOME": None},
        {"HOME": "/nonexistent", "UPWELL_HOME": None},
        {"UPWELL_HOME": "/proc/upwell"},
        {"UPWELL_HOME": "relative/home"},
        {"UPWELL_HOME": "/dev/null"},
        {"PATH": None, "LANG": "C"},
    ],
    ids=str,
)
def test_odd_environments_do_no_harm(
    house: House, env: Mapping[str, str | None], tmp_path: Path
) -> None:
    house.start()
    if "UPWELL_HOME" in env and env["UPWELL_HOME"] is None:
        env = {**env, "XDG_DATA_HOME": str(tmp_path)}
    homes = (tmp_path / "upwell", house.project / "relative" / "home", "/proc/upwell", "/dev/null")
    starting = [Path(DaemonPlace(str(home)).starting) for home in homes]
    for path in starting:
        path.touch()
    try:
        answer = house.hook("claude", event=read_event(house, "fig"), env={**env, **IN_TIME})
    finally:
        for path in starting:
            path.unlink()
    assert isinstance(answer.json, dict)
    assert answer.seconds < MOST_SECONDS


def test_a_closed_stdout_does_no_harm(house: House) -> None:
    house.start()
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *QUICK, "claude"],
        input=json.dumps(read_event(house, "gum")).encode(),
        env=house.environment,
        capture_output=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_paused_home_stays_silent(house: House) -> None:
    house.upwell("off")
    try:
        for start in (house.stop, house.start):
            start()
            assert house.hook("claude", event=prompt_event(house, "paused")).json == {}
            assert house.hook("claude", event=read_event(house, "plum")).json == {}
    finally:
        house.upwell("on")
    assert "pier plum" in str(house.hook("claude", event=read_event(house, "plum")).json)


def test_a_changed_configuration_takes_effect_and_an_invalid_one_does_not(house: House) -> None:
    house.start()
    config = house.home / "config.toml"
    event = read_event(house, "pear")
    try:
        config.write_text("[surface]\nenabled = false\n")
        time.sleep(3.5)
        assert house.hook("claude", event=event).json == {}
        config.write_text("[surface\n")
        time.sleep(3.5)
        assert house.hook("claude", event=event).json == {}
        assert "the old one stays" in (house.home / "log" / "upwell.log").read_text()
    finally:
        config.unlink()
    time.sleep(3.5)
    assert "pier pear" in str(house.hook("claude", event=event).json)
    daemon = daemon_at(str(house.home))
    assert daemon
    assert daemon.state["answered"] >= 3, "the count of events outlives a change of configuration"


def test_the_client_imports_little_when_it_runs_as_a_file(house: House) -> None:
    house.start()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *QUICK[1:], "claude"],
        input=json.dumps(read_event(house, "lime")).encode(),
        env=house.environment,
        capture_output=True,
        timeout=30,
    )
    lines = done.stderr.decode().splitlines()
    names = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    heavy = {"typing", "re", "json", "socket", "signal", "enum", "subprocess", "collections"}
    assert {name.partition(".")[0] for name in names} & heavy == set()
    assert {name for name in names if name.startswith("upwell")} == {
        *("upwell", "upwell.hook", "upwell.hook.place")
    }
    assert b"pier lime" in done.stdout
