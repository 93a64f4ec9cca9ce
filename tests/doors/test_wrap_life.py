"""A wrapped server starts, runs and ends as it would by itself, and no call is lost when one of the
three processes is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.doors.conftest import script
from tests.doors.hooked import House
from tests.doors.peer import alive, processes, wait_gone
from tests.doors.test_wrap import silent
from tests.doors.wrapped import WRAP, direct, wrapped
from upwell.hook.control import daemon_at

PYTHON = sys.executable


@pytest.fixture
def house(tmp_path: Path) -> House:
    return silent(tmp_path)


def run(house: House, command: Sequence[str], **options: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        input=b"",
        capture_output=True,
        timeout=30,
        env=house.environment,
        cwd=house.project,
        **options,  # type: ignore[call-overload]
    )


STATUS = "import sys; sys.stdin.read(); print('on stderr', file=sys.stderr); sys.exit(7)"
SIGNAL = "import os; os.kill(os.getpid(), %d)"


@pytest.mark.parametrize(
    "code", [STATUS, SIGNAL % signal.SIGKILL, SIGNAL % signal.SIGTERM, SIGNAL % signal.SIGSEGV]
)
def test_it_ends_as_the_server_ends(house: House, code: str) -> None:
    command = [PYTHON, "-c", code]
    ours, theirs = run(house, [*WRAP, *command]), run(house, command)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        theirs.returncode,
        theirs.stdout,
        theirs.stderr,
    )


@pytest.mark.parametrize("unset", ["", "LANG"])
def test_the_server_has_the_same_environment_and_folder(house: House, unset: str) -> None:
    house.environment.pop(unset, None)
    house.environment["ODD"] = "a=b\tc\udcff"
    code = "import os, json; print(json.dumps([dict(os.environ), os.getcwd(), os.getpgrp()]))"
    ours, theirs = run(house, [*WRAP, PYTHON, "-c", code]), run(house, [PYTHON, "-c", code])
    assert json.loads(ours.stdout)[:2] == json.loads(theirs.stdout)[:2]


def test_broken_pipes_kill_the_server_as_they_would_by_itself(house: House) -> None:
    """Python ignores SIGPIPE, but the server must not inherit that."""
    done = run(house, [*WRAP, "sh", "-c", "kill -PIPE $$; echo alive"])
    assert done.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("command", "status"),
    [(["no-such-program-here"], 127), (["/"], 126), ([], 2)],
)
def test_a_command_that_cannot_run_is_one_line_and_a_status(
    house: House, command: list[str], status: int
) -> None:
    done = run(house, [*WRAP, *command])
    assert done.returncode == status
    assert done.stderr.startswith(b"upwell: ")
    assert done.stderr.count(b"\n") == 1


def test_when_upwell_runs_the_agent_itself_there_is_no_relay(house: House) -> None:
    house.environment["UPWELL_OFF"] = "1"
    code = "import os; print(os.getpid())"
    running = subprocess.Popen(
        [*WRAP, PYTHON, "-c", code], stdout=subprocess.PIPE, env=house.environment
    )
    assert int(running.communicate(timeout=30)[0]) == running.pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_reach_the_server(house: House, number: signal.Signals) -> None:
    code = (
        "import os, signal, sys\n"
        "def heard(number, _): os.write(1, b'%d\\n' % number); sys.exit(3)\n"
        f"signal.signal({int(number)}, heard); print('ready', flush=True); signal.pause()"
    )
    with wrapped(house, [PYTHON, "-c", code]) as agent:
        assert agent.line() == b"ready"
        agent.process.send_signal(number)
        assert agent.line() == b"%d" % number
        assert agent.process.wait(10) == 3


def test_closing_the_input_ends_the_server(house: House) -> None:
    with wrapped(house, script("upstream")) as agent:
        agent.hello()
        tree = processes(agent.process.pid)
        assert len(tree) == 2
        agent.process.stdin.close()  # type: ignore[union-attr]
        assert agent.process.wait(10) == 0
        assert wait_gone(tree, 5) == []


def test_a_server_that_ignores_the_end_of_its_input_is_told_to_end(house: House) -> None:
    with wrapped(
        house, [PYTHON, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    ) as a:
        a.line()
        tree = processes(a.process.pid)
        a.process.stdin.close()  # type: ignore[union-attr]
        assert a.process.wait(15) == -signal.SIGTERM
        assert wait_gone(tree, 5) == []


def test_a_server_that_closes_its_output_is_seen_to(house: House) -> None:
    code = "import os, sys; os.close(1); sys.stdin.read(); sys.exit(5)"
    with wrapped(house, [PYTHON, "-c", code]) as agent:
        assert agent.process.stdout is not None
        assert agent.process.stdout.read() == b""
        assert agent.process.poll() is None
        agent.process.stdin.close()  # type: ignore[union-attr]
        assert agent.process.wait(10) == 5


def test_the_last_words_of_a_server_arrive(house: House) -> None:
    said = b'{"id":1,"result":"%s"}' % (b"x" * 500_000)
    code = "import sys, os; print(sys.stdin.readline(), end='', flush=True); os._exit(9)"
    with wrapped(house, [PYTHON, "-c", code]) as agent:
        agent.send_bytes(said + b"\n")
        assert agent.line() == said
        assert agent.process.wait(10) == 9


def test_a_killed_server_ends_the_relay(house: House) -> None:
    with wrapped(house, script("upstream")) as agent:
        agent.hello()
        server = processes(agent.process.pid)[1]
        os.kill(server, signal.SIGKILL)
        assert agent.process.wait(10) == -signal.SIGKILL


def test_a_killed_relay_ends_the_server(house: House) -> None:
    with wrapped(house, script("upstream")) as agent:
        agent.hello()
        tree = processes(agent.process.pid)
        agent.process.kill()
        assert wait_gone(tree, 10) == []


def test_a_program_that_the_server_leaves_behind_does_not_hold_the_relay(house: House) -> None:
    with wrapped(house, ["sh", "-c", "sleep 30 & echo said; exit 4"]) as agent:
        assert agent.line() == b"said"
        tree = processes(agent.process.pid)
        assert agent.process.wait(10) == 4
        for pid in tree[1:]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("killed"))
    house.start()
    yield house
    house.stop()


def test_killing_the_daemon_loses_no_call(served: House) -> None:
    """Small and large calls go on while the daemon is killed again and again. The relay starts it
    anew, and it is no child of the relay, because agents end what their servers have started."""
    with wrapped(served, script("upstream")) as agent, direct(served, script("upstream")) as plain:
        agent.hello()
        plain.hello()
        expected = plain.call("big_markdown")
        agent.tools()
        killed = shortened = 0
        end = time.monotonic() + 60
        while (killed < 4 or not shortened) and time.monotonic() < end:
            started = [
                agent.start("tools/call", {"name": name, "arguments": {}})
                for name in ("big_markdown", "numbers", "empty", "big_markdown")
            ]
            daemon = daemon_at(str(served.home))
            if daemon and daemon.pid and killed < 4:
                os.kill(daemon.pid, signal.SIGKILL)
                killed += 1
                Path(served.place.starting).unlink(missing_ok=True)
            results = [agent.reply(identity)["result"] for identity in started]
            for result in (results[0], results[3]):
                is_whole = result["content"] == expected["content"]
                assert is_whole or "Shortened from" in result["content"][-1]["text"]
                shortened += not is_whole and killed >= 4
            if not daemon:
                served.upwell("daemon", "start")
        assert killed == 4
        assert shortened, "after the last kill, results are shortened again"
        daemon = daemon_at(str(served.home))
        assert daemon
        assert daemon.pid not in processes(agent.process.pid)


def test_the_relay_starts_the_daemon_after_the_tools_are_listed(served: House) -> None:
    served.stop()
    with wrapped(served, script("upstream")) as agent:
        agent.hello()
        assert not os.path.exists(served.place.starting)
        assert "outputSchema" not in agent.tools()["structured_big"]
        assert served.daemon_answers()
        assert daemon_at(str(served.home)).pid not in processes(agent.process.pid)  # type: ignore[union-attr]
