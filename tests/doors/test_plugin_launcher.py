"""What plugins run: it installs upwell once, and then runs upwell's own launchers."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.doors.hooked import House

ROOT = Path(__file__).parents[2]
RUN = ROOT / "plugins" / "upwell" / "run"
UPWELL = f'#!/bin/sh\nexec {sys.executable} -P -m upwell "$@"\n'
FAKE = """\
#!/bin/sh
[ "$*" = "tool dir --bin" ] && {{ echo {bin}; exit; }}
echo "$(basename "$0") $*" >>{bin}/calls
sleep {seconds}
{work}
"""
STARTED = {"session_id": "s", "hook_event_name": "SessionStart", "source": "startup"}
TOOLS = {"add_memory", "delete_memory", "memory_get", "memory_search", "read_more"}


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Machine:
    """A machine with an installed plugin and without upwell. `place` is the plugin's folder."""

    def __init__(self, folder: Path) -> None:
        self.house = House(folder / "house")
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.place = folder / "cache" / "plugins" / "upwell"
        self.place.mkdir(parents=True)
        shutil.copy(RUN, self.place / "run")
        self.wheel = self.place.resolve() / "upwell-9.whl"
        self.wheel.touch()
        self.house.environment["PATH"] = f"{self.bin}:/usr/bin:/bin"

    def give(self, program: str, *, seconds: float = 0, fails: bool = False) -> None:
        """Put a fake uv or pipx on the PATH. It installs this upwell."""
        (self.bin / "upwell.new").write_text(UPWELL)
        install = f"cp {self.bin}/upwell.new {self.bin}/upwell; chmod +x {self.bin}/upwell"
        work = "echo no network >&2; exit 2" if fails else install
        script = self.bin / program
        script.write_text(FAKE.format(bin=self.bin, seconds=seconds, work=work))
        script.chmod(0o755)

    def popen(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", str(self.place / "run"), *args],
            env=self.house.environment,
            cwd=self.house.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, input: str = "{}") -> "Ran":
        with self.popen(*args) as process:
            out, err = process.communicate(input, timeout=60)
            return Ran(process.returncode, out, err)

    def start(self) -> "Ran":
        event = {**STARTED, "cwd": str(self.house.project)}
        return self.run("start", "claude", input=json.dumps(event))

    @property
    def calls(self) -> list[str]:
        file = self.bin / "calls"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def log(self) -> Path:
        return self.house.home / "log" / "install.log"

    def wait(self) -> None:
        """Wait until the installation in the background has ended."""
        deadline = time.monotonic() + 60
        while (self.log.parent / "installing").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.wait()
    machine.house.stop()


def test_a_session_starts_with_the_rules_although_upwell_was_not_installed(
    machine: Machine,
) -> None:
    rule = "Never commit to the main branch"
    machine.house.upwell("remember", "--pin", rule)
    machine.give("uv")
    started = machine.start()
    assert started.returncode == 0
    assert rule in json.loads(started.stdout)["hookSpecificOutput"]["additionalContext"]
    machine.start()
    assert len(machine.calls) == 1


def test_other_hooks_do_not_wait_and_upwell_is_installed_once(machine: Machine) -> None:
    machine.give("uv", seconds=2)
    began = time.monotonic()
    for _ in range(5):
        done = machine.run("hook", "claude")
        assert done == (0, "", "")
    assert time.monotonic() - began < 2
    machine.wait()
    assert len(machine.calls) == 1
    assert json.loads(machine.run("hook", "claude").stdout) == {}


def test_it_serves_the_tools_once_upwell_is_installed(machine: Machine) -> None:
    machine.give("pipx")
    assert tools_of(machine) == TOOLS
    assert machine.calls == [f"pipx install {machine.wheel}"]


def test_a_home_in_the_working_directory_is_not_used(machine: Machine) -> None:
    machine.give("uv")
    machine.start()
    shutil.copytree(machine.house.home, machine.house.project / "up")
    machine.house.environment["UPWELL_HOME"] = "up"
    assert machine.run("hook", "claude") == (0, "", "")


def test_nothing_is_installed_from_a_package_index(machine: Machine) -> None:
    machine.wheel.unlink()
    machine.give("uv")
    assert machine.run("hook", "claude") == (0, "", "")
    machine.wait()
    assert machine.calls == []
    assert "install upwell from a clone" in machine.log.read_text()


def test_it_serves_none_if_the_agents_settings_have_them(machine: Machine) -> None:
    machine.give("uv")
    settings = Path(machine.house.environment["HOME"], ".claude.json")
    settings.write_text('{"mcpServers": {"up": {"command": "true"}}}')
    assert tools_of(machine) == TOOLS
    machine.house.upwell("setup", "--yes", "--only", "servers")
    assert "upwell" in json.loads(settings.read_text())["mcpServers"]
    assert tools_of(machine) == set()


def tools_of(machine: Machine) -> set[str]:
    """The tools that the plugin's server lists for Claude Code."""
    params = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "claude-code", "version": "1"},
    }
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    with machine.popen("serve") as server:
        assert server.stdin
        assert server.stdout
        server.stdin.write("".join(json.dumps(line) + "\n" for line in asked))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
    return {tool["name"] for tool in answers[1]["result"]["tools"]}


def test_without_uv_and_pipx_hooks_are_silent_and_the_server_says_why(machine: Machine) -> None:
    for verb in ("start", "hook"):
        done = machine.run(verb, "claude")
        assert done == (0, "", "")
    done = machine.run("serve")
    assert done.returncode == 1
    assert "needs uv or pipx" in done.stderr


def test_a_failed_installation_is_not_tried_again_at_every_hook(machine: Machine) -> None:
    machine.give("uv", fails=True)
    for _ in range(2):
        done = machine.start()
        assert done == (0, "", "")
    assert len(machine.calls) == 1
    assert "no network" in machine.run("serve").stderr


def test_upwell_comes_from_the_files_that_the_plugin_came_with(machine: Machine) -> None:
    machine.give("uv", fails=True)
    cache = machine.place.parents[1]

    def source() -> str:
        machine.log.unlink(missing_ok=True)
        machine.start()
        return machine.calls[-1].rpartition(" ")[2]

    assert source() == str(machine.wheel)
    machine.wheel.unlink()
    (cache / "src" / "upwell").mkdir(parents=True)
    (cache / "src" / "upwell" / "__main__.py").touch()
    (cache / "pyproject.toml").touch()
    assert Path(source()).resolve() == cache


def test_upwell_is_installed_again_if_its_files_are_gone(machine: Machine) -> None:
    machine.give("uv")
    machine.start()
    machine.house.stop()
    launcher = machine.house.home / "upwell-hook"
    launcher.write_text(launcher.read_text().replace("client=/", "client=/gone/"))
    (machine.bin / "upwell").unlink()
    machine.log.unlink()
    assert machine.start().returncode == 0
    assert len(machine.calls) == 2


def test_hooks_in_the_agents_own_file_answer_instead_of_those_of_the_plugin(
    machine: Machine,
) -> None:
    rule = "Never commit to the main branch"
    machine.house.upwell("remember", "--pin", rule)
    machine.give("uv")
    assert rule in machine.start().stdout
    machine.house.upwell("hook", "install", "claude", "--apply")
    assert json.loads(machine.start().stdout) == {}
    machine.house.upwell("hook", "uninstall", "claude", "--apply")
    assert "hookSpecificOutput" in machine.start().stdout
