"""A burst of connections takes no descriptor that the rest of the process needs, at any listener:
the HTTP server, the daemon behind the hooks, and the port of a login.
"""

import asyncio
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.doors.address import Address, said, serving
from tests.doors.conftest import QUICK, script, write_config
from tests.doors.hooked import House
from upwell.ground import listener
from upwell.setup.login import PATH, Callback

BURST = 400
FEW_FILES = ("sh", "-c", 'ulimit -n 160; exec "$@"', "sh")
"""Runs a command with a limit for open files: above what an idle gateway with one server needs, and
below the size of the burst."""


@contextmanager
def burst(place: str | tuple[str, int], number: int = BURST) -> Iterator[None]:
    """Connections on which nothing is ever said."""
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with ExitStack() as stack:
        for _ in range(number):
            silent = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            silent.settimeout(0.2)
            # A full queue refuses or delays further connections, which is as good.
            with suppress(OSError):
                silent.connect(place)
        yield


def written(folder: Path) -> str:
    """Everything that upwell wrote to its log and to stderr."""
    return "".join(path.read_text() for path in folder.rglob("*.log"))


def ping(address: Address) -> None:
    assert said(address.begin().call("up__echo", text="here")) == "here"


@pytest.mark.slow
def test_the_owner_is_answered_during_a_burst(tmp_path: Path) -> None:
    write_config(tmp_path / "home", {"up": script("upstream")}, gateway=QUICK)
    with ExitStack() as stack:
        home, log = tmp_path / "home", tmp_path / "serve.log"
        address = stack.enter_context(serving(home, log, run_by=FEW_FILES))
        ping(address)
        with burst(("127.0.0.1", address.port)):
            ping(address)
        ping(address)
    written_log = written(tmp_path)
    assert "Traceback" not in written_log
    assert "out of system resource" not in written_log


@pytest.mark.slow
def test_descriptors_that_others_took_are_waited_for(tmp_path: Path) -> None:
    """The limit for open files falls below the one that the listener measured at its start."""
    write_config(tmp_path / "home", {"up": script("upstream")}, gateway=QUICK)
    with serving(tmp_path / "home", tmp_path / "serve.log") as address:
        ping(address)
        pid = address_pid(address.port)
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (open_files(pid) + 8, before[1]))
        with burst(("127.0.0.1", address.port), 30):
            deadline = time.monotonic() + 20
            while "accepted" not in written(tmp_path) and time.monotonic() < deadline:
                time.sleep(0.05)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            ping(address)
    log = written(tmp_path)
    assert log.count("no connection can be accepted for a moment") == 1
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_hook_is_answered_after_a_burst_at_the_daemon(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.keep([{"id": "ferry", "text": "The ferry timetable is published on Mondays"}])
    try:
        house.start(run_by=FEW_FILES)
        with burst(house.place.socket):
            assert house.daemon_answers()
        assert house.daemon_answers()
        assert "Traceback" not in written(tmp_path)
    finally:
        house.stop()


async def test_a_login_returns_during_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upwell.setup.login.READ_SECONDS", 0.5)
    async with Callback() as callback:
        callback.expect("s", "shop")
        port = int(callback.uri.rsplit(":")[-1].removesuffix(PATH))
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        read, write = await asyncio.open_connection("127.0.0.1", port)
        write.write(f"GET {PATH}?state=s&code=c HTTP/1.1\r\n\r\n".encode())
        assert (await asyncio.wait_for(read.readline(), 20)).startswith(b"HTTP/1.1 200")
        assert (await callback.answer())["code"] == "c"
        for _, writer in [*silent, (read, write)]:
            writer.close()


async def test_no_more_connections_are_taken_than_allowed() -> None:
    taken: list[asyncio.StreamWriter] = []

    async def connected(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        taken.append(write)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        doorway = listener.stream_listener(listening, connected, max_open=3, name="test")
        clients = [await asyncio.open_connection(*listening.getsockname()) for _ in range(10)]
        for expected in (3, 6, 9):
            while len(taken) < expected:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert len(taken) == expected
            for write in taken[expected - 3 :]:
                write.close()
        while len(taken) < 10:
            await asyncio.sleep(0.01)
        doorway.close()
        taken[-1].close()
        await asyncio.wait_for(doorway.wait_closed(), 20)
        for _, writer in clients:
            writer.close()


async def test_the_limit_is_below_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = open_files(os.getpid()) + 80
    monkeypatch.setattr("resource.getrlimit", lambda number: (limit, limit))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        doorway = listener.Listener(
            listening, lambda ended: asyncio.Protocol(), max_open=1000, name="test"
        )
        assert 1 <= doorway.max_open < 50


def address_pid(port: int) -> int:
    """The process that listens on `port`."""
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    )
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(f"socket:[{inode}]" == str(link.readlink()) for link in folder.iterdir()):
                return int(folder.parent.name)
    raise AssertionError(port)


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
