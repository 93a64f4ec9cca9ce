"""Running an agent to ask its model: the question, the limits, and what is left afterwards."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from upwell.ground.clock import Deadline
from upwell.ground.errors import LlmError
from upwell.ground.llm import Invocation
from upwell.wire.headless import MAX_OUTPUT_BYTES, OFF, HeadlessChat

Chats = Callable[..., HeadlessChat]


@pytest.fixture
def agent(tmp_path: Path) -> Chats:
    """`agent(script)`: the chat of an agent that is a shell script."""

    def chat(script: str, **environment: str) -> HeadlessChat:
        program = tmp_path / "agent"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

        def invoke(system: str, folder: Path) -> Invocation:
            files = {"deep/system.md": system}
            return Invocation(args=("-x", str(folder)), env={"MINE": "1"}, files=files)

        return HeadlessChat(
            str(program),
            invoke,
            lambda output: (output, 7, 0),
            tmp_path / "upwell-headless",
            {"PATH": os.environ["PATH"], "KEPT": "2", "CLAUDECODE": "1", **environment},
        )

    return chat


def ask(chat: HeadlessChat, seconds: float = 20.0) -> str:
    return chat.complete("be brief", "what?\n", Deadline.after(seconds)).text


def ends(pid: int) -> bool:
    """Whether this process, which lives for ten minutes, ends soon. A kill takes effect after it
    returns."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        with suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        time.sleep(0.02)
    return False


def test_the_question_is_on_stdin_and_the_folder_has_only_our_files(
    agent: Chats, tmp_path: Path
) -> None:
    folder = tmp_path / "upwell-headless"
    folder.mkdir()
    (folder / "stale").write_text("")
    text = ask(agent('cat; find . -type f; cat deep/system.md; echo; echo "$@"; pwd'))
    assert text.split("\n") == [
        *("what?", "./deep/system.md", "be brief"),
        *(f"-x {folder}", str(folder), ""),
    ]
    assert not folder.exists()


def test_tokens_that_are_not_reported_are_estimated(agent: Chats) -> None:
    completion = agent("echo some words").complete("a", "b", Deadline.after(20))
    assert (completion.tokens_in, completion.tokens_out) == (7, 4)


def test_the_agent_inherits_the_environment_but_not_its_session(agent: Chats) -> None:
    lines = ask(agent("env")).splitlines()
    assert {"MINE=1", "KEPT=2", f"{OFF}=1"} <= set(lines)
    assert not any(line.startswith("CLAUDECODE=") for line in lines)


def test_an_agent_that_we_run_cannot_run_another(agent: Chats, tmp_path: Path) -> None:
    with pytest.raises(LlmError, match="may not run another"):
        ask(agent(f"touch {tmp_path}/ran; echo hi", **{OFF: "1"}))
    assert not (tmp_path / "ran").exists()


def test_a_late_agent_is_killed_with_its_group(agent: Chats, tmp_path: Path) -> None:
    chat = agent(f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    with pytest.raises(LlmError, match="did not answer in time"):
        ask(chat, 0.5)
    assert ends(int((tmp_path / "pid").read_text()))


def test_processes_that_outlive_the_agent_are_killed(agent: Chats, tmp_path: Path) -> None:
    text = ask(agent(f"sleep 600 & echo $! > {tmp_path}/pid; echo done"))
    assert text == "done\n"
    assert ends(int((tmp_path / "pid").read_text()))


def test_too_much_output_ends_the_run(agent: Chats) -> None:
    with pytest.raises(LlmError, match=f"more than {MAX_OUTPUT_BYTES:,} bytes"):
        ask(agent("yes"))


def test_an_exit_code_is_an_error_with_the_last_words(agent: Chats) -> None:
    with pytest.raises(LlmError, match=r"agent ended with exit code 3: not logged in"):
        ask(agent("echo not logged in >&2; exit 3"))


def test_no_answer_is_an_error(agent: Chats) -> None:
    with pytest.raises(LlmError, match="printed no answer"):
        ask(agent("true"))


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    invoke = lambda system, folder: Invocation(args=())  # noqa: E731
    chat = HeadlessChat(str(tmp_path / "none"), invoke, lambda out: (out, 0, 0), tmp_path / "f", {})
    with pytest.raises(LlmError, match="cannot be run"):
        ask(chat)


def test_closing_ends_the_present_run(agent: Chats, tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    chat = agent(f"echo > {started}; sleep 600")
    faults: list[LlmError] = []

    def run() -> None:
        try:
            ask(chat)
        except LlmError as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    started.read_text()
    chat.close()
    thread.join(10)
    assert "was stopped" in faults[0].message


def test_only_one_runs_at_a_time(agent: Chats, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    chat = agent(f"echo in >> {tmp_path}/log; sleep 0.1; echo out >> {tmp_path}/log; echo ok")
    threads = [threading.Thread(target=ask, args=(chat,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "log").read_text().split() == ["in", "out"] * 3


def test_a_run_that_has_to_wait_too_long_is_an_error(agent: Chats, tmp_path: Path) -> None:
    from upwell.ground.files import exclusively

    with (
        exclusively(tmp_path / "upwell-headless"),
        pytest.raises(LlmError, match="another question"),
    ):
        ask(agent("echo ok"), 0.2)


ASKING = """
import sys
from pathlib import Path
from upwell.ground.clock import Deadline
from upwell.ground.llm import Invocation
from upwell.wire.headless import HeadlessChat

def invoke(system, folder):
    return Invocation(args=())

program, folder, path = sys.argv[1:]
chat = HeadlessChat(program, invoke, lambda out: (out, 0, 0), Path(folder), {"PATH": path})
chat.complete("", "", Deadline.after(60))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the watcher works on Linux")
def test_a_run_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program, started = tmp_path / "agent", tmp_path / "started"
    # The agent reports late, because it is watched only some milliseconds after its start.
    program.write_text(f"#!/bin/sh\nsleep 0.5; echo $$ > {started}; sleep 600\n")
    program.chmod(0o755)
    os.mkfifo(started)
    words = [str(program), str(tmp_path / "folder"), os.environ["PATH"]]
    with subprocess.Popen([sys.executable, "-c", ASKING, *words]) as process:
        agent = int(started.read_text())
        process.kill()
    assert ends(agent)
