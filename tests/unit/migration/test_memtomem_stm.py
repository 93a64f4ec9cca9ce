"""memtomem-stm: settings and servers in the format that `mms add` writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.migration.reading import items_of, place_at

from upwell.config import read
from upwell.migration.base import ImportedServer, LeftOut, Setting
from upwell.migration.memtomem_stm import _KEYS, NO_COUNTERPART, OTHER_SCALE

SERVER = {"prefix": "fs", "transport": "stdio", "command": "npx", "args": ["files-mcp"]}


def proxy(folder: Path, **content: object) -> Path:
    path = folder / ".memtomem" / "stm_proxy.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"enabled": True, **content}))
    return path


def settings_of(path: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    place = place_at(path.parent.parent, environment)
    items = items_of("memtomem-stm", path, place)
    return {".".join(item.key): item.value for item in items if isinstance(item, Setting)}


def test_servers_and_the_limits_of_their_tools(tmp_path: Path) -> None:
    overrides = {"search": {"compression": "hybrid"}}
    path = proxy(tmp_path, upstream_servers={"files": {**SERVER, "tool_overrides": overrides}})
    servers = [item for item in items_of("memtomem-stm", path) if isinstance(item, ImportedServer)]
    assert [(server.name, server.table["command"]) for server in servers] == [("fs", "npx")]
    assert settings_of(path) == {"tool.fs__search.compress.strategy": "hybrid"}


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    path = proxy(tmp_path, default_max_result_chars=9000, min_result_retention=0.5)
    environment = {
        "MEMTOMEM_STM_PROXY__DEFAULT_MAX_RESULT_CHARS": "7000",
        "memtomem_stm_surfacing__injection_mode": "prepend",
        "MEMTOMEM_STM_SURFACING__ENABLED": "False",
        "MEMTOMEM_STM_SURFACING__LTM_MCP_ARGS": '["--db", "x"]',
        "MEMTOMEM_STM_SURFACING__LTM_MCP_HEADERS": '{"X-Key": "y"}',
        "MEMTOMEM_STM_SURFACING__CONTEXT_TOOLS": '{"fs__read": {"query_template": "{path}"}}',
    }
    assert settings_of(path, environment) == {
        "compress.max_result_chars": 7000,
        "compress.min_result_retention": 0.5,
        "surface.injection_mode": "prepend",
        "surface.enabled": False,
        "ltm.args": ["--db", "x"],
        "ltm.headers": {"X-Key": "y"},
        "surface.templates.fs__read": "{path}",
    }


def test_an_agents_file_may_set_variables(tmp_path: Path) -> None:
    path = proxy(tmp_path)
    env = {"MEMTOMEM_STM_SURFACING__PERSIST_QUERY_TEXT": "false"}
    entry = {"command": "memtomem-stm", "env": env}
    (tmp_path / ".cursor").mkdir()
    servers = json.dumps({"mcpServers": {"memtomem-stm": entry}})
    (tmp_path / ".cursor" / "mcp.json").write_text(servers)
    assert settings_of(path) == {"surface.persist_query_text": False}


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("MEMTOMEM_STM_SURFACING__MIN_SCORE", OTHER_SCALE),
        ("MEMTOMEM_STM_LANGFUSE__ENABLED", NO_COUNTERPART),
    ],
)
def test_settings_of_another_kind_stay_out(tmp_path: Path, variable: str, why: str) -> None:
    place = place_at(tmp_path, {variable: "1"})
    (item,) = items_of("memtomem-stm", proxy(tmp_path), place)
    assert isinstance(item, LeftOut)
    assert item.why == why


def test_a_proxy_that_is_switched_off_says_so(tmp_path: Path) -> None:
    path = proxy(tmp_path, enabled=False, upstream_servers={"files": SERVER})
    (item,) = items_of("memtomem-stm", path)
    assert isinstance(item, LeftOut)
    assert "switched off" in item.why


def test_every_setting_has_a_key_in_upwell(tmp_path: Path) -> None:
    """A key that upwell has can only be refused for its value; any other key is refused by name."""
    for ours in _KEYS.values():
        section, name = ours.split(".")
        (tmp_path / "config.toml").write_text(f"[{section}]\n{name} = 0\n")
        mistakes = read(tmp_path, environment={})[1]
        assert not any("unknown key" in mistake.message for mistake in mistakes), ours
