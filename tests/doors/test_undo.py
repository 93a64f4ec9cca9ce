"""`upwell setup --undo` by the real command, with a lost record, lost backups,
and a home whose disk is full: no server is lost, and the file at fault is named."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.older import moved_by_init, moved_by_setup
from tests.small_disk import SmallDisk
from upwell.hook.control import daemon_at, end

FILES = {
    ".claude/settings.json": '{"model": "opus"}\n',
    ".claude.json": '{"mcpServers": {"fs": {"type": "stdio", "command": "fs-mcp"}}}\n',
    ".codex/config.toml": '[mcp_servers.git]\ncommand = "git-mcp"\n',
}
UNDO = (("setup", "--undo", "--yes"), ("setup", "--undo", "--only", "servers", "--yes"))
COMMANDS = ("all", "servers")


class User:
    """A user with Claude Code and Codex."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        for name, text in FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "UPWELL_HOME": str(self.home),
            "UPWELL_HOOK__TOOL_MS": "8000",
        }

    def run(self, *args: str, code: int = 0) -> str:
        """What `upwell` prints; it must end with the status `code`."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "upwell", *args],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout + done.stderr

    def move(self, undo: tuple[str, ...] = UNDO[0]) -> None:
        """Move the servers behind the gateway, as upwell 0.2.0's `setup` did or, if only servers
        are to be undone, its `init`."""
        moved_by_init(self.home, self.environment)
        if undo == UNDO[0]:
            moved_by_setup(self.home, [self.folder / name for name in FILES])

    def state(self) -> dict[str, str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text() for path in files}

    def servers(self) -> tuple[set[str], set[str]]:
        """The names of Claude Code's and Codex's servers."""
        claude = json.loads((self.folder / ".claude.json").read_text())
        codex = tomllib.loads((self.folder / ".codex/config.toml").read_text())
        return set(claude["mcpServers"]), set(codex["mcp_servers"])


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    (tmp_path / "user").mkdir()
    user = User(tmp_path / "user", tmp_path / "home")
    yield user
    if daemon := daemon_at(str(user.home)):
        assert end(daemon)


@pytest.mark.parametrize("undo", UNDO, ids=COMMANDS)
@pytest.mark.parametrize("content", [None, "", "\0", "{}"], ids=["gone", "empty", "garbage", "{}"])
def test_without_a_record_the_servers_come_from_the_backups(
    user: User, undo: tuple[str, ...], content: str | None
) -> None:
    user.move(undo)
    record = user.home / "clients.json"
    if content is None:
        record.unlink()
    else:
        record.write_text(content)
    said = user.run(*undo)
    assert (f"{record} is damaged: " in said) is (content in ("", "\0"))
    assert f"the record of the servers of {user.folder / '.claude.json'} is lost" in said
    after = user.state()
    assert {name: after[name] for name in FILES} == FILES


@pytest.mark.parametrize("undo", UNDO, ids=COMMANDS)
def test_without_a_record_and_backups_the_servers_come_from_config_toml(
    user: User, undo: tuple[str, ...]
) -> None:
    user.move(undo)
    (user.home / "clients.json").unlink()
    for backup in user.folder.rglob("*.upwell-backup"):
        backup.unlink()
    assert "restored from all servers of config.toml: fs, git" in user.run(*undo)
    assert user.servers() == ({"fs", "git"}, {"fs", "git"})


@pytest.mark.parametrize("undo", UNDO, ids=COMMANDS)
def test_with_nothing_left_to_restore_from_the_files_stay(
    user: User, undo: tuple[str, ...]
) -> None:
    user.move(undo)
    for path in (user.home / "clients.json", user.home / "config.toml"):
        path.unlink()
    for backup in user.folder.rglob("*.upwell-backup"):
        backup.unlink()
    said = user.run(*undo, code=1)
    assert f"{user.folder / '.claude.json'}: upwell" in said
    assert user.servers() == ({"upwell"}, {"upwell"})


def test_what_no_agent_has_stays_in_config_toml(user: User) -> None:
    user.move()
    (user.folder / ".codex/config.toml").unlink()
    said = user.run("setup", "--undo", "--yes", code=1)
    assert "no agent has git, so this server stays in config.toml" in said
    config = tomllib.loads((user.home / "config.toml").read_text())
    assert config == {"server": {"git": {"command": "git-mcp"}}}
    assert user.state()[".claude.json"] == FILES[".claude.json"]


@pytest.mark.parametrize("is_lost", [False, True], ids=["record", "no record"])
def test_setup_gives_back_what_an_older_version_moved_and_wraps_it(
    user: User, is_lost: bool
) -> None:
    user.move()
    if is_lost:
        (user.home / "clients.json").unlink()
    said = user.run("setup", "--yes")
    assert "back     claude: its servers leave the gateway, each to its place" in said
    assert "claude: fs → wrapped in its place" in said
    assert user.servers() == ({"fs", "upwell"}, {"git", "upwell"})
    assert '"--", "fs-mcp"' in user.state()[".claude.json"]
    assert "its servers leave" not in user.run("setup", "--yes")
    user.run("setup", "--undo", "--yes")
    after = user.state()
    assert {name: after[name] for name in FILES} == FILES
    assert not (user.home / "config.toml").exists()


def test_setup_also_gives_back_what_init_moved(user: User) -> None:
    user.move(UNDO[1])
    assert "back     claude" in user.run("setup", "--yes")
    user.run("setup", "--undo", "--yes")
    after = user.state()
    assert {name: after[name] for name in FILES} == FILES


def test_a_full_home_changes_no_settings_and_is_named(tmp_path: Path) -> None:
    disk = SmallDisk(1)
    try:
        (tmp_path / "user").mkdir()
        user = User(tmp_path / "user", disk.path / "home")
        user.home.mkdir(mode=0o700)
        disk.fill()
        said = user.run("hook", "install", "claude", "--apply", code=1)
        assert f"cannot write {user.home / 'upwell-hook'}: No space left on device" in said
        said = user.run("setup", "--only", "servers", "--yes", code=1)
        assert f"cannot write {user.home / 'upwell-hook'}: No space left on device" in said
        assert user.state() == FILES
    finally:
        disk.remove()
