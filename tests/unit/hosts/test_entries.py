"""Servers of an agent's file as tables of `config.toml`."""

from pathlib import Path
from typing import Any

import pytest

from upwell.hosts import server_files
from upwell.hosts.servers import ServerEntry, is_upwell


def entry_of(agent: str, raw: Any, folder: Path | None = None) -> ServerEntry:
    """The entry that is read from `raw`, a server in the file of this agent."""
    return server_files()[agent].entry("s", raw, folder)


@pytest.mark.parametrize(
    ("agent", "raw", "table"),
    [
        ("claude", {"command": "a", "args": [], "env": {}}, {"command": "a"}),
        ("cursor", {"command": "a", "env": {"N": 3}}, {"command": "a", "env": {"N": "3"}}),
        ("opencode", {"type": "local", "command": ["a", "b"]}, {"command": "a", "args": ["b"]}),
        ("gemini", {"httpUrl": "http://h/mcp"}, {"url": "http://h/mcp"}),
        ("gemini", {"url": "http://h/sse"}, {"url": "http://h/sse", "transport": "sse"}),
        ("claude", {"type": "sse", "url": "https://h"}, {"url": "https://h", "transport": "sse"}),
        (
            "codex",
            {"url": "https://h", "http_headers": {"X": "y"}},
            {"url": "https://h", "headers": {"X": "y"}},
        ),
        ("claude", {"command": "a", "autoApprove": ["x"], "disabled": False}, {"command": "a"}),
    ],
)
def test_entries_that_are_taken_over(agent: str, raw: Any, table: Any) -> None:
    assert entry_of(agent, raw).table == table


@pytest.mark.parametrize(
    ("agent", "raw", "why"),
    [
        ("claude", "a", "not a table"),
        ("claude", {}, "no command"),
        ("claude", {"command": ["a", 1]}, "no command"),
        ("cursor", {"command": "npx", "args": "-y foo"}, "its args is not a list"),
        ("cursor", {"command": "a", "args": ["-p", 3000]}, "not a string"),
        ("cursor", {"command": "a", "args": {"-p": "x"}}, "its args is not a list"),
        ("claude", {"type": "ws", "url": "wss://h"}, "no command"),
        ("claude", {"type": "ws", "url": "https://h"}, "no command"),
        ("claude", {"command": "a", "env": ["x"]}, "no command"),
        ("cursor", {"command": "a", "disabled": True}, "switched off"),
        ("vscode", {"command": "a", "envFile": "${workspaceFolder}/.env"}, "'envFile'"),
        ("claude", {"command": "a", "args": ["${HOME}/x"]}, "${HOME}"),
        ("opencode", {"url": "https://h", "headers": {"A": "{env:KEY}"}}, "{env:KEY}"),
        ("gemini", {"command": "a", "env": {"K": "$KEY"}}, "$KEY"),
        ("gemini", {"command": "a", "excludeTools": ["rm"]}, "'excludeTools'"),
        ("codex", {"url": "https://h", "bearer_token_env_var": "T"}, "'bearer_token_env_var'"),
    ],
)
def test_entries_that_stay_with_the_agent(agent: str, raw: Any, why: str) -> None:
    entry = entry_of(agent, raw)
    assert not entry.table
    assert why in entry.left


def test_a_dollar_is_a_placeholder_only_for_gemini() -> None:
    assert entry_of("claude", {"command": "a", "args": ["$5"]}).table


def test_a_server_of_a_project_runs_in_the_projects_folder(tmp_path: Path) -> None:
    raw = {"command": "./a", "cwd": "sub"}
    assert entry_of("claude", raw, tmp_path).table["cwd"] == str(tmp_path / "sub")
    assert "cwd" not in entry_of("claude", {"url": "https://h"}, tmp_path).table


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ({"command": "/opt/bin/upwell", "args": ["serve"]}, True),
        ({"command": "python3", "args": ["-m", "upwell", "serve"]}, True),
        ({"type": "local", "command": ["uvx", "upwell", "serve"]}, True),
        ({"command": "upwell", "args": ["daemon", "run"]}, False),
        ({"command": "my-upwell", "args": ["serve"]}, False),
        ({"command": "files", "args": ["upwell", "--serve"]}, False),
        ({"url": "https://upwell/serve"}, False),
    ],
)
def test_which_entries_are_upwell(raw: dict[str, Any], ours: bool) -> None:
    assert is_upwell(raw) is ours
