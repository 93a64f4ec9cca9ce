"""A gateway joins the session that hooks of the same agent record."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from upwell.ground import host_sessions
from upwell.ground.host_sessions import LOOK_SECONDS, HostSessions, JoinedSessions, agent_of
from upwell.ground.ledger import TtlStore
from upwell.testing import ManualClock

AGENT, OTHER, THIRD = 4_000_000, 4_000_001, 4_000_002
LAUNCHED = "Mon Nov  2 06:49:27 2026    "


async def test_a_gateway_joins_the_session_of_its_agent():
    clock = ManualClock()
    sessions = HostSessions(TtlStore())
    joined = JoinedSessions(sessions, AGENT, "/repo", clock)
    assert await joined.session("claude", "own") == "own"
    await sessions.record("claude", AGENT, None, "first")
    assert await joined.session("claude", "own") == "own"
    clock.advance(LOOK_SECONDS)
    assert await joined.session("claude", "own") == "first"
    await sessions.record("claude", AGENT, "/repo", "second")
    clock.advance(LOOK_SECONDS)
    assert await joined.session("claude", "own") == "second"
    assert joined.known("claude", "own") == "second"


async def test_another_agents_session_is_not_joined():
    clock = ManualClock()
    sessions = HostSessions(TtlStore())
    await sessions.record("claude", OTHER, "/elsewhere", "theirs")
    assert await JoinedSessions(sessions, AGENT, "/repo", clock).session("claude", "own") == "own"
    assert (
        await JoinedSessions(sessions, AGENT, "/elsewhere", clock).session("claude", "own")
        == "theirs"
    )


@pytest.mark.parametrize("host", ["cursor", "some-client", ""])
@pytest.mark.parametrize("parent", [AGENT, OTHER])
async def test_a_session_of_another_host_is_joined_neither_by_folder_nor_by_process(host, parent):
    sessions = HostSessions(TtlStore())
    await sessions.record("claude", AGENT, "/repo", "claudes")
    joined = JoinedSessions(sessions, parent, "/repo", ManualClock())
    assert await joined.session(host, "own") == "own"
    assert joined.known(host, "own") == "own"
    assert await joined.session("claude", "own") == "claudes"


async def test_each_host_in_a_folder_has_its_own_session():
    sessions = HostSessions(TtlStore())
    await sessions.record("claude", AGENT, "/repo", "claudes")
    await sessions.record("cursor", OTHER, "/repo", "cursors")
    joined = JoinedSessions(sessions, THIRD, "/repo", ManualClock())
    assert await joined.session("cursor", "own") == "cursors"
    assert await joined.session("claude", "own") == "claudes"


async def test_one_of_two_windows_is_joined_only_by_its_process():
    sessions = HostSessions(TtlStore())
    await sessions.record("claude", AGENT, "/repo", "left")
    await sessions.record("claude", OTHER, "/repo", "right")
    assert await sessions.joined("claude", AGENT, "/repo") == "left"
    assert await sessions.joined("claude", THIRD, "/repo") == ""
    await sessions.end("claude", "left")
    assert await sessions.joined("claude", THIRD, "/repo") == "right"


async def test_a_process_that_begins_a_second_session_has_left_the_first():
    sessions = HostSessions(TtlStore())
    await sessions.record("claude", AGENT, "/repo", "first")
    await sessions.record("claude", AGENT, "/repo", "second")
    assert await sessions.joined("claude", OTHER, "/repo") == "second"


@pytest.fixture(params=["/proc", "/no/such/folder"], ids=["proc", "ps"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux, and a system whose processes only `ps` knows, such as macOS."""
    monkeypatch.setattr(host_sessions, "PROC", request.param)


@pytest.mark.usefixtures("system")
async def test_a_session_whose_agent_is_gone_is_not_joined_by_its_folder():
    sessions = HostSessions(TtlStore())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as agent:
        await sessions.record("claude", agent.pid, "/repo", "short")
        assert await sessions.joined("claude", AGENT, "/repo") == "short"
        agent.communicate(b"\n")
    assert await sessions.joined("claude", AGENT, "/repo") == ""


@pytest.mark.usefixtures("system")
async def test_a_shell_between_the_agent_and_its_hook_is_skipped():
    sessions = HostSessions(TtlStore())
    script = "sh -c 'echo $$; read line; :'; :"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", script], **pipes) as shell:
        inner = int(shell.stdout.readline())
        await sessions.record("claude", inner, None, "s")
        shell.communicate(b"\n")
    assert inner != shell.pid
    assert await sessions.joined("claude", os.getpid(), None) == "s"


@pytest.mark.parametrize("command", ["-zsh", "/bin/zsh", "/opt/my tools/npx"])
def test_wrappers_are_skipped_under_the_names_that_macos_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
):
    ps = tmp_path / "ps"
    agent = "/Applications/Some Agent.app/Contents/MacOS/Some Agent"
    lines = {11: f"   10 {LAUNCHED} {command}", 10: f"    1 {LAUNCHED} {agent}"}
    cases = "".join(f"*' {pid}') echo '{line}';;\n" for pid, line in lines.items())
    ps.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}esac\n')
    ps.chmod(0o755)
    monkeypatch.setattr(host_sessions, "PROC", "/no/such/folder")
    monkeypatch.setattr(host_sessions, "PS", str(ps))
    assert agent_of(11) == 10
    assert agent_of(12) == 12


async def test_a_folder_is_the_same_through_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    sessions = HostSessions(TtlStore())
    await sessions.record("cursor", AGENT, str(tmp_path / "link"), "s")
    assert await sessions.joined("cursor", OTHER, str(tmp_path / "real")) == "s"


async def test_a_process_begins_the_same_session_again_until_it_begins_another():
    sessions = HostSessions(TtlStore())
    begun = [
        await sessions.begins_again(AGENT, "one"),
        await sessions.begins_again(AGENT, "one"),
        await sessions.begins_again(OTHER, "one"),
        await sessions.begins_again(AGENT, "two"),
        await sessions.begins_again(AGENT, "one"),
        await sessions.begins_again(0, "one"),
        await sessions.begins_again(0, "one"),
    ]
    assert begun == [False, True, False, False, False, False, False]
