"""`upwell setup --only servers`: the servers of agents, wrapped in their places and unwrapped, by
the real command."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import script
from tests.doors.older import moved_by_init
from tests.doors.peer import Peer, text_of
from tests.doors.test_given_back import FILES, SECRETS, UNDO, servers, state, user
from upwell.hook.place import DaemonPlace
from upwell.hosts import server_files
from upwell.hosts.servers import wrapped_words

__all__ = ["user"]

WRAP = ("setup", "--only", "servers")

FILE_OF = {
    ".claude.json": "claude",
    ".config/Claude/claude_desktop_config.json": "claude-desktop",
    ".cursor/mcp.json": "cursor",
    ".config/Code/User/mcp.json": "vscode",
    ".codex/config.toml": "codex",
    ".gemini/settings.json": "gemini",
    ".config/opencode/opencode.jsonc": "opencode",
}
AT_AN_ADDRESS = {"tracker", "remote", "old", "far"}


def entries(user: Path) -> dict[tuple[str, str], Any]:
    """The servers of all agents, keyed by agent and name."""
    return {
        (agent, name): raw
        for path, agent in FILE_OF.items()
        for _, name, raw in server_files()[agent].raw_entries((user / path).read_text())
        if name != "upwell"
    }


def test_every_server_keeps_its_place(upwell: Upwell, user: Path, home: Path) -> None:
    before = entries(user)
    shown = upwell(*WRAP, "--dry-run")
    assert shown.code == 0, shown.err
    assert state(user) == FILES
    assert not [secret for secret in SECRETS if secret in shown.out + shown.err]

    done = upwell(*WRAP, "--yes")
    assert done.code == 0, done.err
    assert "claude: tracker → stays as it is: it is at an address" in done.out
    after = entries(user)
    assert list(after) == list(before)
    assert {name for (_, name), raw in after.items() if not wrapped_words(raw)} == AT_AN_ADDRESS
    for place, raw in after.items():
        rest = {key: value for key, value in raw.items() if key not in ("command", "args")}
        assert rest.items() <= before[place].items(), "everything else is as it was"
    assert servers(home) == {}, "no server moved to config.toml"

    once = state(user)
    again = upwell(*WRAP, "--yes")
    assert "nothing to do" in again.out
    assert state(user) == once


def test_a_claude_code_that_has_kept_nothing_else_gets_its_hooks(
    upwell: Upwell, user: Path
) -> None:
    assert not (user / ".claude").exists()
    assert "hooks    claude: create" in upwell("setup", "--dry-run").out


def test_unwrapping_restores_every_byte(upwell: Upwell, user: Path) -> None:
    assert upwell(*WRAP, "--yes").code == 0
    done = upwell(*UNDO, "--yes")
    assert done.code == 0, done.err
    assert state(user) == FILES
    assert not list(user.rglob("*.upwell-backup*"))
    assert upwell(*UNDO, "--yes").line == "there is nothing to undo"


@pytest.mark.parametrize("damage", ["record", "backups", "both"])
def test_the_agents_own_files_are_enough(
    upwell: Upwell, user: Path, home: Path, damage: str
) -> None:
    before = entries(user)
    assert upwell(*WRAP, "--yes").code == 0
    if damage != "backups":
        (home / "wrapped.json").unlink()
    if damage != "record":
        for backup in user.rglob("*.upwell-backup*"):
            backup.unlink()
    done = upwell(*UNDO, "--yes")
    assert done.code == 0, done.err
    after = entries(user)
    assert {place: {"args": [], **raw} for place, raw in after.items()} == {
        place: {"args": [], **raw} for place, raw in before.items()
    }
    cursor = (user / ".cursor/mcp.json").read_text()
    assert "// what I use at work" in cursor
    assert "}, // old" in cursor
    assert "# everything" in (user / ".codex/config.toml").read_text()


def test_what_the_user_changed_meanwhile_stays(upwell: Upwell, user: Path) -> None:
    assert upwell(*WRAP, "--yes").code == 0
    codex = user / ".codex/config.toml"
    codex.write_text(codex.read_text().replace("startup_timeout_sec = 20", "enabled = false"))
    claude = user / ".claude.json"
    claude.write_text(claude.read_text().replace('"numStartups": 212', '"numStartups": 213'))
    assert upwell(*UNDO, "--yes").code == 0
    server = tomllib.loads(codex.read_text())["mcp_servers"]["docs"]
    assert (server["command"], server["args"]) == ("docs-mcp", ["--all"])
    assert server["enabled"] is False
    content = json.loads(claude.read_text())
    assert content["numStartups"] == 213
    assert content["mcpServers"]["files"]["args"] == ["-y", "files-mcp"]


def test_servers_behind_the_gateway_are_given_back_first(
    upwell: Upwell, user: Path, home: Path, environment: Mapping[str, str]
) -> None:
    moved_by_init(home, environment)
    done = upwell(*WRAP, "--yes")
    assert done.code == 0, done.err
    assert "back     claude: its servers leave the gateway, each to its place" in done.out
    assert "claude: files → wrapped in its place" in done.out
    assert upwell(*UNDO, "--yes").code == 0
    assert state(user) == FILES


def test_in_the_users_home_each_server_is_named_once(upwell: Upwell, user: Path) -> None:
    done = upwell(*WRAP, "--project", "--yes", cwd=user)
    assert done.code == 0, done.err
    assert done.out.count(": files → wrapped in its place") == 3
    done = upwell(*UNDO, "--project", "--yes", cwd=user)
    assert done.code == 0, done.err
    assert state(user) == FILES


def test_a_broken_file_is_reported_and_the_others_proceed(upwell: Upwell, user: Path) -> None:
    (user / ".codex/config.toml").write_text("[mcp_servers\n")
    done = upwell(*WRAP, "--yes")
    assert done.code == 1
    assert f"{user / '.codex/config.toml'}: " in done.err
    assert (user / ".codex/config.toml").read_text() == "[mcp_servers\n"
    assert b'"wrap"' in (user / ".claude.json").read_bytes()
    assert upwell(*UNDO, "--yes").code == 1
    assert b'"wrap"' not in (user / ".claude.json").read_bytes()


def test_another_program_called_upwell_keeps_its_name(upwell: Upwell, user: Path) -> None:
    path = user / ".cursor/mcp.json"
    path.write_text(before := '{"mcpServers": {"upwell": {"command": "pump", "envFile": "x"}}}')
    assert upwell(*WRAP, "--yes").code == 0
    (wrapped,) = json.loads(path.read_text())["mcpServers"].values()
    assert wrapped["args"] == ["wrap", "--name", "upwell", "--", "pump"]
    assert upwell(*UNDO, "--yes").code == 0
    assert path.read_text() == before


def test_an_agent_can_start_a_wrapped_server(
    environment: Mapping[str, str], upwell: Upwell, home: Path, tmp_path: Path
) -> None:
    """The entry in Cursor's file, started in an environment that knows nothing of upwell."""
    path = Path(environment["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir()
    program, *args = script("upstream")
    path.write_text(json.dumps({"mcpServers": {"up": {"command": program, "args": args}}}))
    assert upwell(*WRAP, "--yes").code == 0
    entry = json.loads(path.read_text())["mcpServers"]["up"]
    place = DaemonPlace(str(home))
    os.makedirs(place.folder, mode=0o700, exist_ok=True)
    Path(place.starting).touch()  # so that the wrapper starts no daemon
    bare = {"PATH": "/usr/bin:/bin", "HOME": environment["HOME"], **entry.get("env", {})}
    command = [entry["command"], *entry["args"]]
    with Peer(command, modern=False, errors=tmp_path / "stderr", env=bare) as peer:
        peer.hello()
        assert text_of(peer.call("echo", text="hi")) == "hi"


def test_a_machine_without_agents(upwell: Upwell, environment: Mapping[str, str]) -> None:
    assert upwell(*WRAP, "--yes").out.endswith("nothing to do\n")
    folder = Path(environment["HOME"], ".cursor")
    folder.mkdir()
    assert upwell(*WRAP, "--yes").code == 0
    assert "upwell" in (folder / "mcp.json").read_text()
    assert upwell(*UNDO, "--yes").code == 0
    assert list(folder.iterdir()) == []


def test_the_old_names_say_the_new_ones(upwell: Upwell, user: Path) -> None:
    done = upwell("init", "--yes")
    assert done.err.startswith("upwell: `upwell init` is now `upwell setup --only servers`\n")
    assert b'"wrap"' in (user / ".claude.json").read_bytes()
    assert upwell("eject", "--yes").code == 0
    assert state(user) == FILES
