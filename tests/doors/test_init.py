"""The servers of agents: taken over, shown, and given back byte for byte, by the real command."""

import json
import os
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Upwell
from tests.doors.conftest import script
from tests.doors.peer import Peer, text_of
from upwell.hook.place import Place

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
STAY = {"mine", "asks", "remote", "some", "off"}


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


def test_init_shows_and_writes_nothing(upwell: Upwell, user: Path, home: Path) -> None:
    done = upwell("init")
    assert done.code == 0, done.err
    assert "--apply" in done.err
    assert state(user) == FILES
    assert servers(home) == {}
    for name in FILES:
        assert str(user / name) in done.out
    assert "[server.tracker]" in done.out
    assert 'headers = {Authorization = "***"}' in done.out
    assert not [secret for secret in SECRETS if secret in done.out + done.err]


def test_init_and_eject_restore_every_byte(upwell: Upwell, user: Path, home: Path) -> None:
    done = upwell("init", "--apply")
    assert done.code == 0, done.err
    taken = servers(home)
    assert taken["files"] == {"command": "npx", "args": ["-y", "files-mcp"]}
    assert taken["files-cursor"]["env"] == {"KEY": "cursor-secret"}
    assert taken["tracker"]["headers"] == {"Authorization": "Bearer tracker-token-1"}
    assert taken["old"] == {"url": "https://old.example.org/sse", "transport": "sse"}
    assert taken["shell"] == {"command": "shell-mcp", "args": ["-v"], "env": {"A": "1"}}
    assert taken["db-main"] == {"command": "db-mcp", "args": ["--read-only"]}
    assert set(taken) == {
        *("files", "files-cursor", "tracker", "old", "shell", "db-main", "docs", "far")
    }
    assert (home / "config.toml").stat().st_mode & 0o777 == 0o600
    rows = upwell("list", "--json").json["servers"]
    assert {row["name"] for row in rows} == set(taken)
    for name, before in FILES.items():
        now = (user / name).read_text(encoding="utf-8-sig")
        assert now.count("serve") > before.decode().count("serve"), name
        assert "upwell" in now

    once = state(user), servers(home)
    again = upwell("init", "--apply")
    assert (again.code, (state(user), servers(home))) == (0, once), again.err
    assert "nothing to do" in again.out

    shown = upwell("eject")
    assert shown.code == 0, shown.err
    assert (state(user), servers(home)) == once
    assert not [secret for secret in SECRETS if secret in shown.out]
    done = upwell("eject", "--apply")
    assert done.code == 0, done.err
    assert state(user) == FILES
    assert upwell("eject", "--apply").line == "no agent uses upwell"


def test_listed_servers_stay_with_their_agents(upwell: Upwell, user: Path, home: Path) -> None:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "config.toml").write_text('[gateway]\nleave = ["files", "docs"]\n')
    done = upwell("init", "--apply")
    assert done.code == 0, done.err
    assert "files stays: gateway.leave lists it" in done.out
    assert set(servers(home)) == {"tracker", "old", "shell", "db-main", "far"}
    left = json.loads((user / ".claude.json").read_text())["mcpServers"]
    assert set(left) == {"files", "upwell"}
    assert "docs" in tomllib.loads((user / ".codex/config.toml").read_text())["mcp_servers"]
    assert "nothing to do" in upwell("init", "--apply").out
    assert upwell("eject", "--apply").code == 0
    assert state(user) == FILES


def test_foreign_entries_keep_their_place(upwell: Upwell, user: Path) -> None:
    assert upwell("init", "--apply").code == 0
    claude = json.loads((user / ".claude.json").read_text())
    assert list(claude["mcpServers"]) == ["upwell"]
    assert claude["mcpServers"]["upwell"]["args"][-1] == "serve"
    assert claude["projects"]["/somewhere"]["mcpServers"] == {"local": {"command": "local-mcp"}}
    assert '"price": 1.50' in (user / ".claude.json").read_text()
    cursor = (user / ".cursor/mcp.json").read_text()
    assert "// what I use at work" in cursor
    assert '"mine": {"command": "mine", "env": {"HOME_OF": "${userHome}/x"}}' in cursor
    code = json.loads((user / ".config/Code/User/mcp.json").read_text())
    assert set(code["servers"]) == {"asks", "upwell"}
    assert code["inputs"][0]["id"] == "token"
    codex = (user / ".codex/config.toml").read_text()
    assert codex.startswith('# mine\nmodel = "gpt-5"  # the large one\n')
    assert "# how it asks\n[profiles.careful]\n" in codex
    assert set(tomllib.loads(codex)["mcp_servers"]) == {"remote", "upwell"}
    desktop = (user / ".config/Claude/claude_desktop_config.json").read_bytes()
    assert desktop.startswith(b"\xef\xbb\xbf")
    assert desktop.count(b"\n") == desktop.count(b"\r\n") > 5


def test_a_changed_file_loses_only_our_entry(upwell: Upwell, user: Path) -> None:
    assert upwell("init", "--apply").code == 0
    changes = {
        ".claude.json": ('"numStartups": 212', '"numStartups": 213'),
        ".codex/config.toml": ('model = "gpt-5"', 'model = "gpt-6"'),
        ".config/opencode/opencode.jsonc": ("// local ones", "// my own"),
    }
    for name, (old, new) in changes.items():
        text = (user / name).read_text()
        assert old in text
        (user / name).write_text(text.replace(old, new))
    assert upwell("eject", "--apply").code == 0
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


def test_a_server_added_later_moves_too_and_all_are_given_back(
    upwell: Upwell, user: Path, home: Path
) -> None:
    assert upwell("init", "--apply").code == 0
    path = user / ".claude.json"
    value = json.loads(path.read_text())
    value["mcpServers"]["later"] = {"command": "later-mcp"}
    path.write_text(json.dumps(value))
    assert upwell("init", "--apply").code == 0
    assert servers(home)["later"] == {"command": "later-mcp"}
    assert list(json.loads(path.read_text())["mcpServers"]) == ["upwell"]
    assert upwell("eject", "--apply").code == 0
    back = json.loads(path.read_text())["mcpServers"]
    assert back["later"] == {"command": "later-mcp"}
    assert {"files", "tracker", "later"} == set(back)


def test_a_broken_file_is_reported_and_the_others_proceed(
    upwell: Upwell, user: Path, home: Path
) -> None:
    (user / ".cursor/mcp.json").write_bytes(b'{"mcpServers": {"a": ')
    (user / ".gemini/settings.json").write_bytes(b'{"mcpServers": ["a"]}')
    (user / ".codex/config.toml").write_bytes(b"[mcp_servers.x\n")
    before = state(user)
    done = upwell("init", "--apply")
    assert done.code == 1
    for name in (".cursor/mcp.json", ".gemini/settings.json", ".codex/config.toml"):
        assert str(user / name) in done.err
        assert (user / name).read_bytes() == before[name]
    assert "files" in servers(home)
    assert list(json.loads((user / ".claude.json").read_text())["mcpServers"]) == ["upwell"]


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "upwell", "args": ["serve"]},
        {"command": "/opt/bin/upwell", "args": ["serve"], "env": {"UPWELL_HOME": "/x"}},
        {"command": "uvx", "args": ["upwell", "serve"]},
    ],
)
def test_upwell_does_not_take_over_itself(
    upwell: Upwell, environment: Mapping[str, str], home: Path, entry: dict[str, Any]
) -> None:
    path = Path(environment["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir()
    path.write_text(json.dumps({"mcpServers": {"gate": entry, "x": {"command": "x-mcp"}}}))
    assert upwell("init", "--apply").code == 0
    assert json.loads(path.read_text())["mcpServers"] == {"gate": entry}
    assert servers(home) == {"x": {"command": "x-mcp"}}


def test_another_program_called_upwell_is_not_overwritten(upwell: Upwell, user: Path) -> None:
    path = user / ".cursor/mcp.json"
    path.write_text('{"mcpServers": {"upwell": {"command": "pump", "envFile": "x"}}}')
    done = upwell("init", "--apply")
    assert done.code == 1
    assert "runs another program" in done.err
    assert "pump" in path.read_text()


def test_add_from_clients_touches_no_file_of_an_agent(
    upwell: Upwell, user: Path, home: Path
) -> None:
    done = upwell("add", "--from-clients")
    assert done.code == 0, done.err
    assert state(user) == FILES
    assert "files-cursor" in servers(home)
    (user / ".codex/config.toml").write_text('mcp_servers = {inline = {command = "inline"}}')
    assert upwell("init").code == 1
    assert upwell("add", "--from-clients").code == 0
    once = servers(home)
    assert once["inline"] == {"command": "inline"}
    assert upwell("add", "--from-clients").code == 0
    assert servers(home) == once
    assert upwell("add", "--from-clients", "name").code == 2
    assert upwell("add").code == 2


def test_listing_as_json(upwell: Upwell, user: Path) -> None:
    reply = upwell("init", "--json").json
    assert reply["applied"] is False
    assert {row["original"] for row in reply["servers"] if row["left"]} == STAY
    assert len(reply["files"]) == len(FILES) + 1
    text = json.dumps(reply)
    assert not [secret for secret in SECRETS if secret in text]


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
    assert upwell("init", "--project", "--apply", cwd=folder).code == 0
    assert servers(home) == {
        "near": {"command": "near-mcp", "cwd": str(folder)},
        "team": {"command": "./team-mcp", "cwd": str(folder)},
    }
    assert "team" not in (folder / ".mcp.json").read_text()
    assert upwell("eject", "--project", "--apply", cwd=folder).code == 0
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
    assert upwell("init", "--apply").code == 0
    assert set(servers(home)) == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("options", "tool"), [((), "up__echo"), (("--wrap",), "echo")])
def test_an_agent_can_start_the_entry_that_init_writes(
    environment: Mapping[str, str],
    upwell: Upwell,
    home: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    tool: str,
) -> None:
    """The entry in Cursor's file, started in an environment that knows nothing of upwell."""
    path = Path(environment["HOME"], ".cursor", "mcp.json")
    path.parent.mkdir()
    program, *args = script("upstream")
    path.write_text(json.dumps({"mcpServers": {"up": {"command": program, "args": args}}}))
    assert upwell("init", *options, "--apply").code == 0
    servers = json.loads(path.read_text())["mcpServers"]
    entry = servers.get("up") or servers["upwell"]
    place = Place(str(home))
    os.makedirs(place.folder, mode=0o700, exist_ok=True)
    Path(place.starting).touch()  # so that the wrapper starts no daemon
    bare = {"PATH": "/usr/bin:/bin", "HOME": environment["HOME"], **entry.get("env", {})}
    command = [entry["command"], *entry["args"]]
    with Peer(command, modern=False, errors=tmp_path / "stderr", env=bare) as peer:
        peer.hello()
        assert text_of(peer.call(tool, text="hi")) == "hi"


def test_a_machine_without_agents(upwell: Upwell, environment: Mapping[str, str]) -> None:
    assert "to run `upwell serve`" in upwell("init", "--apply").line
    folder = Path(environment["HOME"], ".cursor")
    folder.mkdir()
    assert upwell("init", "--apply").code == 0
    assert "upwell" in (folder / "mcp.json").read_text()
    assert upwell("eject", "--apply").code == 0
    assert list(folder.iterdir()) == []
    shutil.rmtree(folder)
