"""memtomem-stm in an agent's file, and the servers behind it."""

import json
from pathlib import Path
from typing import Any

import pytest

from upwell.hosts.memtomem import is_memtomem, proxied_servers, proxy_file, servers_behind

PROXY: dict[str, Any] = {
    "enabled": True,
    "upstream_servers": {
        "filesystem": {
            "prefix": "fs",
            "transport": "stdio",
            "compression": "selective",
            "max_result_chars": 9000,
            "command": "npx",
            "args": ["-y", "files-mcp"],
            "env": {"KEY": "value"},
            "surfacing_enabled": False,
            "call_timeout_seconds": 20.0,
            "tool_overrides": {"search": {"compression": "hybrid"}, "read": {"hidden": True}},
        },
        "gh": {
            "prefix": "gh",
            "transport": "streamable_http",
            "compression": "auto",
            "url": "https://example.org/mcp",
            "headers": {"Authorization": "Bearer x"},
        },
    },
}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"command": "memtomem-stm"}, True),
        ({"command": "/opt/bin/mms"}, True),
        ({"command": "/venv/bin/python", "args": ["-m", "memtomem_stm"]}, True),
        ({"command": "uvx", "args": ["memtomem-stm@0.6.9"]}, True),
        ({"command": "uv", "args": ["run", "--directory", "/x", "memtomem-stm"]}, True),
        ({"command": "uvx", "args": ["--from", "memtomem-stm[otlp]", "memtomem-stm"]}, True),
        ({"command": "npx", "args": ["files-mcp", "/code/memtomem-stm"]}, False),
        ({"command": "memtomem-server"}, False),
        ({"url": "https://example.org"}, False),
        ({}, False),
    ],
)
def test_its_servers_are_recognised_by_their_command(table: dict[str, Any], expected: bool) -> None:
    assert is_memtomem(table) is expected


def test_the_servers_keep_the_prefix_of_their_tools() -> None:
    files, hub = proxied_servers(PROXY)
    assert files.name == "fs"
    assert files.table == {
        "command": "npx",
        "args": ["-y", "files-mcp"],
        "env": {"KEY": "value"},
        "compress": {"strategy": "selective", "max_result_chars": 9000},
        "surface": {"enabled": False},
        "call_timeout_seconds": 20.0,
    }
    assert hub.table == {
        "url": "https://example.org/mcp",
        "headers": {"Authorization": "Bearer x"},
    }


def test_a_proxy_that_is_switched_off_has_no_servers() -> None:
    assert proxied_servers({**PROXY, "enabled": False}) == []


def test_upwell_behind_the_proxy_stays_out() -> None:
    servers = {"up": {"prefix": "up", "command": "upwell", "args": ["serve"]}}
    assert proxied_servers({"enabled": True, "upstream_servers": servers}) == []


@pytest.mark.parametrize("named", [True, False])
def test_the_entry_may_name_the_file(tmp_path: Path, named: bool) -> None:
    path = tmp_path / ("own.json" if named else ".memtomem/stm_proxy.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(PROXY))
    env = {"MEMTOMEM_STM_PROXY__CONFIG_PATH": str(path)} if named else {}
    table = {"command": "memtomem-stm", "env": env}
    assert [entry.name for entry in servers_behind(table, {}, tmp_path)] == ["fs", "gh"]
    assert servers_behind({"command": "other", "env": env}, {}, tmp_path) == []


def test_a_server_that_upwell_cannot_run_keeps_the_proxy(tmp_path: Path) -> None:
    servers = {**PROXY["upstream_servers"], "odd": {"prefix": "odd"}}
    path = proxy_file({}, tmp_path)
    path.parent.mkdir()
    path.write_text(json.dumps({"enabled": True, "upstream_servers": servers}))
    assert servers_behind({"command": "mms"}, {}, tmp_path) == []


@pytest.mark.parametrize("content", [None, "[]", "nonsense"])
def test_a_file_that_cannot_be_read_gives_no_servers(tmp_path: Path, content: str | None) -> None:
    path = proxy_file({}, tmp_path)
    path.parent.mkdir()
    if content is not None:
        path.write_text(content)
    assert servers_behind({"command": "mms"}, {}, tmp_path) == []
