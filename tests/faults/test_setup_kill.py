"""`upwell setup` and its undo are killed, or find the disk full, at each change of a file. Every
server stays in an agent's file or in `config.toml`, and undoing restores every byte. A process of
its own forks for each step, which is quick."""

import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.doors.older import moved_by_init, moved_by_setup
from upwell.app.setting_up import SettingUp
from upwell.cli.hooks import hook_installation, installer_of
from upwell.cli.servers import clients_of_user
from upwell.config import load
from upwell.hosts.servers import wrapped_words

FILES = {
    ".claude/settings.json": '{\n  "model": "opus"\n}\n',
    ".claude.json": '{"numStartups": 7, "mcpServers": {"fs": {"command": "fs-mcp"}, '
    '"web": {"type": "http", "url": "http://127.0.0.1:9/mcp"}}}',
    ".codex/config.toml": 'model = "x"\n\n[mcp_servers.git]  # keep\ncommand = "git-mcp"\n',
    ".gemini/settings.json": '{\n  // dark\n  "mcpServers": {"g": {"command": "g-mcp"}}\n}\n',
    ".cursor/mcp.json": '{"mcpServers": {"fs": {"command": "other-mcp"}}}\n',
}
SERVERS = {"fs-mcp", "http://127.0.0.1:9/mcp", "git-mcp", "g-mcp", "other-mcp"}
SERVER_FILES = {
    ".claude.json": "claude",
    ".codex/config.toml": "codex",
    ".gemini/settings.json": "gemini",
    ".cursor/mcp.json": "cursor",
}
MODES = {"kill": 2, "full": 5, "once": 5}
DAILY = 3
"""By day, this part of the steps is tried; every night, all of them."""
"""The process dies, the disk is full from now on, or one change of a file fails. Every second or
fifth change is tried, to save time."""
MOST_STEPS = 400
State = dict[str, tuple[int, bytes]]


class Fault:
    """What goes wrong in this process at the change of a file with this number."""

    def __init__(self, mode: str, at: int) -> None:
        self._mode, self._at = mode, at
        self.changes = 0

    def install(self) -> None:
        for name in ("replace", "unlink", "mkdir", "rmdir", "chmod", "fchmod", "link"):
            setattr(os, name, self._failing(name, getattr(os, name)))
        os.fsync = lambda descriptor: self._change("fsync")
        open_ = os.open

        def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._change("open")
            return open_(path, flags, *args, **options)

        os.open = opened  # type: ignore[assignment]

    def _failing(self, name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **options: Any) -> Any:
            self._change(name)
            return change(*args, **options)

        return changed

    def _change(self, name: str) -> None:
        self.changes += 1
        if self.changes == self._at and self._mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        frees_space = name in ("unlink", "rmdir")
        is_full = self._mode == "full" and self.changes >= self._at and not frees_space
        if is_full or (self._mode == "once" and self.changes == self._at and not frees_space):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def setting_up() -> SettingUp:
    clients = clients_of_user(project=False)
    home = load().home.prepare()
    return SettingUp(clients, installer_of(hook_installation()), home)


def set_up(report: Callable[[str, str], None]) -> None:
    work = setting_up()
    work.write(work.plan(), report)


def undo(report: Callable[[str, str], None]) -> None:
    setting_up().undo(report)


def move(report: Callable[[str, str], None]) -> None:
    """Set up as an older version did: all servers move behind the gateway."""
    environment = {**load().environment, "HOME": str(Path.home())}
    moved_by_init(load().home.root, environment)
    files = [Path.home() / name for name in SERVER_FILES]
    moved_by_setup(load().home.root, files, list(SERVER_FILES.values()))


WORK = {"setup": set_up, "undo": undo, "update": set_up, "give back": undo, "move": move}
FIRST = {"setup": "setup", "undo": "setup", "update": "move", "give back": "move"}
"""What the work does, undoes or starts from."""


def succeeded(name: str) -> None:
    faults: list[str] = []
    WORK[name](lambda path, why: faults.append(f"{path}: {why}") if why else None)
    assert faults == []


def survived(name: str, mode: str, at: int) -> bool:
    """Whether the work has fewer changes than `at`, in a process of its own."""
    child = os.fork()
    if child == 0:
        fault = Fault(mode, at)
        fault.install()
        try:
            WORK[name](lambda path, why: None)
        except Exception as error:
            if "No space left" not in str(error):
                traceback.print_exc()
                os._exit(3)
        os._exit(0 if fault.changes < at else 4)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 4, -signal.SIGKILL), code
    return code == 0


def state(user: Path) -> State:
    return {
        str(path.relative_to(user)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in user.rglob("*")
        if path.is_file()
    }


def servers_of(user: Path, home: Path) -> set[str]:
    """The servers in the agents' files and in `config.toml`."""
    tables: list[Any] = []
    for name in FILES:
        text = (user / name).read_text()
        if name.endswith(".toml"):
            tables.append(tomllib.loads(text).get("mcp_servers", {}))
        else:
            without_comments = re.sub(r"(?m)^ *//.*$", "", text)
            tables.append(json.loads(without_comments).get("mcpServers", {}))
    config = home / "config.toml"
    tables.append(tomllib.loads(config.read_text()).get("server", {}) if config.exists() else {})
    servers = [raw for table in tables for raw in table.values()]
    return {raw.get("url") or (wrapped_words(raw) or [raw["command"]])[0] for raw in servers}


def fresh(user: Path, home: Path) -> State:
    for folder in (user, home):
        shutil.rmtree(folder, ignore_errors=True)
    for name, text in FILES.items():
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text(text)
        (user / name).chmod(0o644)
    return state(user)


def drill(user: Path, home: Path, name: str, mode: str, part: int) -> int:
    """Let the work fail at the changes of files. Returns about how many there are."""
    for at in range(1, MOST_STEPS, MODES[mode] * part):
        before = fresh(user, home)
        if FIRST[name] != name:
            succeeded(FIRST[name])
        is_complete = survived(name, mode, at)
        assert servers_of(user, home) >= SERVERS, (name, mode, at)
        succeeded("undo")
        assert state(user) == before, (name, mode, at)
        succeeded(FIRST[name])
        assert servers_of(user, home) >= SERVERS, (name, mode, at)
        succeeded("undo")
        assert state(user) == before, (name, mode, at)
        assert not (home / "config.toml").exists(), (name, mode, at)
        if is_complete:
            return at
    raise AssertionError("there are more changes than were tried")


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("part", [DAILY, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_step_of_setup_or_undo_loses_a_server(
    tmp_path: Path, name: str, mode: str, part: int
) -> None:
    user, home = tmp_path / "user", tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.test_setup_kill", user, home, name, mode, f"{part}"],
        env={"PATH": os.environ["PATH"], "HOME": str(user), "UPWELL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert int(done.stdout) > 60


if __name__ == "__main__":
    os.fsync = lambda descriptor: None  # a killed process loses nothing that it has written
    print(drill(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5])))
