"""The servers of agents that upwell 0.2.0 moved behind the gateway, given back byte for byte, and
`upwell add --from-clients`, by the real command."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.older import moved_by_init

FILES: dict[str, bytes] = {
    ".claude.json": b"""{
  "numStartups": 212,
  "oauthAccount": {"accessToken": "sk-ant-oat01-verysecretindeed"},
  "mcpServers": {
    "files": {"type": "stdio", "command": "npx", "args": ["-y", "files-mcp"], "env": {}},
    "tracker": {
      "type": "http",
      "url": "https://tracker.example.org/mcp",
      "headers": {"Authorization": "Bearer tracker-token-1"}
    }
  },
  "projects": {"/somewhere": {"mcpServers": {"local": {"command": "local-mcp"}}, "history": []}},
  "price": 1.50
}
""",
    ".config/Claude/claude_desktop_config.json": (
        b'\xef\xbb\xbf{\r\n\t"mcpServers": {\r\n\t\t"files": {\r\n\t\t\t"command": "npx",\r\n'
        b'\t\t\t"args": ["-y", "files-mcp"]\r\n\t\t}\r\n\t},\r\n\t"scale": 2\r\n}\r\n'
    ),
    ".cursor/mcp.json": b"""{
    // what I use at work
    "mcpServers": {
        "files": {"command": "uvx", "args": ["x"], "env": {"KEY": "cursor-secret"}}, // old
        "mine": {"command": "mine", "env": {"HOME_OF": "${userHome}/x"}},
    },
}
""",
    ".config/Code/User/mcp.json": b"""{
  "inputs": [{"type": "promptString", "id": "token", "password": true}],
  "servers": {
    "asks": {"command": "asks", "env": {"T": "${input:token}"}},
    "db.main": {"type": "stdio", "command": "db-mcp", "args": ["--read-only"]}
  }
}""",
    ".codex/config.toml": b"""# mine
model = "gpt-5"  # the large one

[mcp_servers.docs]
command = "docs-mcp"
args = [
  "--all",  # everything
]
startup_timeout_sec = 20

[mcp_servers.docs.env]
DOCS_KEY = "codex-secret"

# how it asks
[profiles.careful]
approval_policy = "untrusted"

[mcp_servers.remote]
url = "https://remote.example.org/mcp"
bearer_token_env_var = "REMOTE"
""",
    ".gemini/settings.json": b"""{
  "theme": "GitHub", /* light */
  "mcpServers": {
    "old": {"url": "https://old.example.org/sse", "timeout": 9000, "trust": false},
    "some": {"command": "some", "excludeTools": ["rm"]}
  }
}
""",
    ".config/opencode/opencode.jsonc": b"""{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    // local ones
    "shell": {"type": "local", "command": ["shell-mcp", "-v"], "environment": {"A": "1"}},
    "far": {"type": "remote", "url": "https://far.example.org/mcp", "enabled": true},
    "off": {"type": "local", "command": ["off-mcp"], "enabled": false},
  }
}
""",
}
SECRETS = ("sk-ant-oat01", "tracker-token-1", "cursor-secret", "codex-secret")


@pytest.fixture
def user(environment: Mapping[str, str]) -> Path:
    """The home of a user with every agent."""
    user = Path(environment["HOME"])
    for name, content in FILES.items():
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_bytes(content)
    return user


def state(user: Path) -> dict[str, bytes]:
    return {name: (user / name).read_bytes() for name in FILES}


def servers(home: Path) -> dict[str, Any]:
    path = home / "config.toml"
    return dict(tomllib.loads(path.read_text())["server"]) if path.exists() else {}


UNDO = ("setup", "--undo", "--only", "servers")


def give_back(upwell: Upwell) -> None:
    done = upwell(*UNDO, "--yes")
    assert done.code == 0, done.err


def test_every_byte_is_restored(
    upwell: Upwell, user: Path, home: Path, environment: Mapping[str, str]
) -> None:
    moved_by_init(home, environment)
    taken = servers(home)
    assert taken["files"] == {"command": "npx", "args": ["-y", "files-mcp"]}
    assert taken["files-cursor"]["env"] == {"KEY": "cursor-secret"}
    for name, before in FILES.items():
        now = (user / name).read_text(encoding="utf-8-sig")
        assert now.count("serve") > before.decode().count("serve"), name

    once = state(user), servers(home)
    shown = upwell(*UNDO, "--dry-run")
    assert shown.code == 0, shown.err
    assert (state(user), servers(home)) == once
    for name in FILES:
        assert str(user / name) in shown.out
    assert not [secret for secret in SECRETS if secret in shown.out]
    give_back(upwell)
    assert state(user) == FILES
    assert upwell(*UNDO, "--yes").line == "there is nothing to undo"


def test_a_changed_file_loses_only_our_entry(
    upwell: Upwell, user: Path, home: Path, environment: Mapping[str, str]
) -> None:
    moved_by_init(home, environment)
    changes = {
        ".claude.json": ('"numStartups": 212', '"numStartups": 213'),
        ".codex/config.toml": ('model = "gpt-5"', 'model = "gpt-6"'),
        ".config/opencode/opencode.jsonc": ("// local ones", "// my own"),
    }
    for name, (old, new) in changes.items():
        text = (user / name).read_text()
        assert old in text
        (user / name).write_text(text.replace(old, new))
    give_back(upwell)
    for name, content in FILES.items():
        if name not in changes:
            assert (user / name).read_bytes() == content
    claude, before = json.loads((user / ".claude.json").read_text()), FILES[".claude.json"]
    assert claude == {**json.loads(before), "numStartups": 213}
    codex = (user / ".codex/config.toml").read_text()
    expected = tomllib.loads(FILES[".codex/config.toml"].decode())
    assert tomllib.loads(codex) == {**expected, "model": "gpt-6"}
    assert "# the large one" in codex
    opencode = (user / ".config/opencode/opencode.jsonc").read_text()
    assert "// my own" in opencode
    assert "upwell" not in opencode
    assert all(f'"{name}"' in opencode for name in ("shell", "far", "off"))


def test_a_server_added_later_is_kept(
    upwell: Upwell, user: Path, home: Path, environment: Mapping[str, str]
) -> None:
    moved_by_init(home, environment)
    path = user / ".claude.json"
    value = json.loads(path.read_text())
    value["mcpServers"]["later"] = {"command": "later-mcp"}
    path.write_text(json.dumps(value))
    give_back(upwell)
    back = json.loads(path.read_text())["mcpServers"]
    assert back["later"] == {"command": "later-mcp"}
    assert {"files", "tracker", "later"} == set(back)


def test_add_from_clients_touches_no_file_of_an_agent(
    upwell: Upwell, user: Path, home: Path
) -> None:
    done = upwell("add", "--from-clients")
    assert done.code == 0, done.err
    assert state(user) == FILES
    taken = servers(home)
    assert set(taken) == {
        *("files", "files-cursor", "tracker", "old", "shell", "db-main", "docs", "far")
    }
    assert taken["tracker"]["headers"] == {"Authorization": "Bearer tracker-token-1"}
    assert taken["old"] == {"url": "https://old.example.org/sse", "transport": "sse"}
    assert taken["shell"] == {"command": "shell-mcp", "args": ["-v"], "env": {"A": "1"}}
    assert taken["db-main"] == {"command": "db-mcp", "args": ["--read-only"]}
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    assert {row["name"] for row in upwell("list", "--json").json["servers"]} == set(taken)
    (user / ".codex/config.toml").write_text('mcp_servers = {inline = {command = "inline"}}')
    assert upwell("add", "--from-clients").code == 0
    once = servers(home)
    assert once["inline"] == {"command": "inline"}
    assert upwell("add", "--from-clients").code == 0
    assert servers(home) == once
    assert upwell("add", "--from-clients", "name").code == 2
    assert upwell("add").code == 2


def test_listed_servers_are_left_out(upwell: Upwell, user: Path, home: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text('[gateway]\nleave = ["files", "docs"]\n')
    done = upwell("add", "--from-clients")
    assert done.code == 0, done.err
    assert "files is left out: gateway.leave lists it" in done.out
    assert set(servers(home)) == {"tracker", "old", "shell", "db-main", "far"}


def test_a_broken_file_is_reported_and_the_others_are_read(
    upwell: Upwell, user: Path, home: Path
) -> None:
    broken = {
        ".cursor/mcp.json": b'{"mcpServers": {"a": ',
        ".gemini/settings.json": b'{"mcpServers": ["a"]}',
        ".codex/config.toml": b"[mcp_servers.x\n",
    }
    for name, content in broken.items():
        (user / name).write_bytes(content)
    done = upwell("add", "--from-clients")
    assert done.code == 1
    assert all(str(user / name) in done.err for name in broken)
    assert "files" in servers(home)


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "upwell", "args": ["serve"]},
        {"command": "/opt/bin/upwell", "args": ["serve"], "env": {"UPWELL_HOME": "/x"}},
        {"command": "uvx", "args": ["upwell", "serve"]},
    ],
)
def test_upwell_is_not_put_behind_itself(
    upwell: Upwell, environment: Mapping[str, str], home: Path, entry: dict[str, Any]
) -> None:
    path = Path(environment["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"gate": entry, "x": {"command": "x-mcp"}}}))
    assert upwell("add", "--from-clients").code == 0
    assert servers(home) == {"x": {"command": "x-mcp"}}
    before = path.read_bytes()
    assert upwell(*UNDO, "--yes").line == "there is nothing to undo"
    assert path.read_bytes() == before


def test_a_project_is_considered_only_on_request(
    upwell: Upwell, environment: Mapping[str, str], home: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    mine = Path(environment["HOME"], ".claude.json")
    local = {"projects": {str(folder): {"mcpServers": {"near": {"command": "near-mcp"}}}}}
    mine.write_text(json.dumps(local))
    (folder / ".mcp.json").write_text('{"mcpServers": {"team": {"command": "./team-mcp"}}}')
    before = mine.read_bytes(), (folder / ".mcp.json").read_bytes()
    upwell("add", "--from-clients", cwd=folder)
    assert servers(home) == {}
    moved_by_init(home, environment, folder)
    assert servers(home) == {
        "near": {"command": "near-mcp", "cwd": str(folder)},
        "team": {"command": "./team-mcp", "cwd": str(folder)},
    }
    assert "team" not in (folder / ".mcp.json").read_text()
    assert upwell(*UNDO, "--project", "--yes", cwd=folder).code == 0
    assert (mine.read_bytes(), (folder / ".mcp.json").read_bytes()) == before


def test_folders_from_environment_variables(
    environment: dict[str, str], upwell: Upwell, home: Path, tmp_path: Path
) -> None:
    places = {
        "CLAUDE_CONFIG_DIR": (".claude.json", '{"mcpServers": {"a": {"command": "a"}}}'),
        "CODEX_HOME": ("config.toml", '[mcp_servers.b]\ncommand = "b"\n'),
        "GEMINI_CLI_HOME": (".gemini/settings.json", '{"mcpServers": {"c": {"command": "c"}}}'),
        "OPENCODE_CONFIG_DIR": ("opencode.json", '{"mcp": {"d": {"command": ["d"]}}}'),
    }
    for variable, (name, text) in places.items():
        path = tmp_path / variable / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        environment[variable] = str(tmp_path / variable)
    assert upwell("add", "--from-clients").code == 0
    assert set(servers(home)) == {"a", "b", "c", "d"}
