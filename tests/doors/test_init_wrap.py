"""The servers of agents: wrapped in their places and unwrapped, by the real command."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.test_init import FILES, SECRETS, servers, state, user
from upwell.hosts import server_files
from upwell.hosts.entries import wrapped_words

__all__ = ["user"]

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
    shown = upwell("init", "--wrap")
    assert shown.code == 0, shown.err
    assert state(user) == FILES
    assert not [secret for secret in SECRETS if secret in shown.out + shown.err]

    done = upwell("init", "--wrap", "--apply")
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
    again = upwell("init", "--wrap", "--apply")
    assert "nothing to do" in again.out
    assert state(user) == once


def test_unwrapping_restores_every_byte(upwell: Upwell, user: Path) -> None:
    assert upwell("init", "--wrap", "--apply").code == 0
    assert "upwell eject --apply" in upwell("setup", "--undo", "--dry-run").err
    done = upwell("eject", "--apply")
    assert done.code == 0, done.err
    assert "stay in config.toml" not in done.out
    assert state(user) == FILES
    assert not list(user.rglob("*.upwell-backup*"))
    assert upwell("eject", "--apply").line == "no agent uses upwell"


@pytest.mark.parametrize("damage", ["record", "backups", "both"])
def test_the_agents_own_files_are_enough(
    upwell: Upwell, user: Path, home: Path, damage: str
) -> None:
    before = entries(user)
    assert upwell("init", "--wrap", "--apply").code == 0
    if damage != "backups":
        (home / "wrapped.json").unlink()
    if damage != "record":
        for backup in user.rglob("*.upwell-backup*"):
            backup.unlink()
    done = upwell("eject", "--apply")
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
    assert upwell("init", "--wrap", "--apply").code == 0
    codex = user / ".codex/config.toml"
    codex.write_text(codex.read_text().replace("startup_timeout_sec = 20", "enabled = false"))
    claude = user / ".claude.json"
    claude.write_text(claude.read_text().replace('"numStartups": 212', '"numStartups": 213'))
    assert upwell("eject", "--apply").code == 0
    server = tomllib.loads(codex.read_text())["mcp_servers"]["docs"]
    assert (server["command"], server["args"]) == ("docs-mcp", ["--all"])
    assert server["enabled"] is False
    content = json.loads(claude.read_text())
    assert content["numStartups"] == 213
    assert content["mcpServers"]["files"]["args"] == ["-y", "files-mcp"]


def test_a_wrapped_server_does_not_move_behind_the_gateway(
    upwell: Upwell, user: Path, home: Path
) -> None:
    assert upwell("init", "--wrap", "--apply").code == 0
    once = state(user)
    done = upwell("init", "--apply")
    assert done.code == 1
    assert "its servers are wrapped in their places (`upwell eject --apply` unwraps" in done.err
    assert servers(home) == {}
    assert state(user) == once
    done = upwell("eject", "--apply")
    assert done.code == 0, done.err
    assert not [place for place, raw in entries(user).items() if wrapped_words(raw)]


def test_servers_behind_the_gateway_are_given_back_first(upwell: Upwell, user: Path) -> None:
    assert upwell("init", "--apply").code == 0
    once = state(user)
    assert "`upwell eject --apply` gives them back" in upwell("init", "--wrap", "--apply").err
    assert state(user) == once
    assert upwell("eject", "--apply").code == 0
    assert state(user) == FILES
    assert "eject" not in upwell("init", "--wrap").err


def test_in_the_users_home_each_server_is_named_once(upwell: Upwell, user: Path) -> None:
    done = upwell("init", "--wrap", "--project", "--apply", cwd=user)
    assert done.code == 0, done.err
    assert done.out.count(": files → wrapped in its place") == 3
    done = upwell("eject", "--project", "--apply", cwd=user)
    assert done.code == 0, done.err
    assert state(user) == FILES


def test_a_broken_file_is_reported_and_the_others_proceed(upwell: Upwell, user: Path) -> None:
    (user / ".codex/config.toml").write_text("[mcp_servers\n")
    done = upwell("init", "--wrap", "--apply", "--json")
    assert done.code == 1
    assert list(json.loads(done.out)["refused"]) == [str(user / ".codex/config.toml")]
    assert (user / ".codex/config.toml").read_text() == "[mcp_servers\n"
    assert b'"wrap"' in (user / ".claude.json").read_bytes()
    assert upwell("eject", "--apply").code == 1
    assert b'"wrap"' not in (user / ".claude.json").read_bytes()
