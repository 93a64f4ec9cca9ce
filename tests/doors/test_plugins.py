"""Setup, doctor and the end of a turn, for an agent that has upwell's plugin.

The agents' files are as the agents wrote them when they installed the plugin."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doors.hooked import House
from tests.doors.test_plugin_launcher import ROOT, RUN
from upwell import __version__
from upwell.hosts.installation import Installation
from upwell.hosts.plugins import plugin_of

NAME = "upwell@upwell"
FOLDER = {"source": "directory", "path": str(ROOT)}
IN_FOLDER: Mapping[str, Mapping[str, Any]] = {
    "claude": {
        ".claude/settings.json": {"enabledPlugins": {NAME: True}},
        ".claude/plugins/known_marketplaces.json": {
            "upwell": {"source": FOLDER, "installLocation": str(ROOT)}
        },
    },
    "copilot": {
        ".copilot/settings.json": {
            "enabledPlugins": {NAME: True},
            "extraKnownMarketplaces": {"upwell": {"source": FOLDER}},
        },
    },
}
"""The files after an installation from a folder, for each agent."""


def copied(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """The files after an installation that copied the plugin to `folder`, for each agent."""
    git = {"source": "git", "url": "https://example.com/upwell.git"}
    entry = {"name": "upwell", "marketplace": "upwell", "enabled": True}
    return {
        "claude": {
            ".claude/settings.json": {"enabledPlugins": {NAME: True}},
            ".claude/plugins/known_marketplaces.json": {"upwell": {"source": git}},
            ".claude/plugins/installed_plugins.json": {
                "version": 2,
                "plugins": {NAME: [{"scope": "user", "installPath": str(folder)}]},
            },
        },
        "copilot": {
            ".copilot/config.json": {"installedPlugins": [{**entry, "cache_path": str(folder)}]}
        },
    }


def write(user: Path, files: Mapping[str, Any]) -> None:
    for name, value in files.items():
        path = user / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))


def give_codex(user: Path) -> Path:
    """Codex with the plugin. Returns the plugin's folder."""
    folder = user / ".codex/plugins/cache/upwell/upwell" / __version__
    folder.mkdir(parents=True)
    (folder / "run").write_text(RUN.read_text())
    (user / ".codex/config.toml").write_text('[plugins."upwell@upwell"]\nenabled = true\n')
    return folder


def found(user: Path, agent: str) -> str | None:
    plugin = plugin_of(agent, Installation(user_folder=user, environment={}, command=()))
    return plugin.version if plugin else None


@pytest.mark.parametrize("agent", IN_FOLDER)
def test_a_plugin_is_found_wherever_the_agent_keeps_it(tmp_path: Path, agent: str) -> None:
    assert found(tmp_path, agent) is None
    write(tmp_path, IN_FOLDER[agent])
    assert found(tmp_path, agent) == __version__
    other, plugin = tmp_path / "other", tmp_path / "plugin"
    write(other, copied(plugin)[agent])
    assert found(other, agent) == ""
    plugin.mkdir()
    (plugin / "run").write_text("version=0.1.9\n")
    assert found(other, agent) == "0.1.9"


def test_a_plugin_of_codex_is_found_unless_it_is_disabled(tmp_path: Path) -> None:
    assert found(tmp_path, "codex") is None
    give_codex(tmp_path)
    assert found(tmp_path, "codex") == __version__
    settings = tmp_path / ".codex/config.toml"
    settings.write_text(settings.read_text().replace("true", "false"))
    assert found(tmp_path, "codex") is None


@pytest.mark.parametrize("text", ["", "[", "[1]", '{"enabledPlugins": 3}'])
def test_odd_settings_have_no_plugin(tmp_path: Path, text: str) -> None:
    for name in (".claude/settings.json", ".copilot/config.json", ".codex/config.toml"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    assert [found(tmp_path, agent) for agent in ("claude", "copilot", "codex")] == [None] * 3


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    user = Path(house.environment["HOME"])
    write(user, IN_FOLDER["claude"])
    (user / ".gemini").mkdir()
    yield house
    house.stop()


def test_setup_leaves_the_hooks_and_the_tools_to_the_plugin(house: House) -> None:
    user = Path(house.environment["HOME"])
    settings = user / ".claude" / "settings.json"
    servers = {"mcpServers": {"up": {"type": "stdio", "command": "true", "args": []}}}
    (user / ".claude.json").write_text(json.dumps(servers))
    before = settings.read_text()
    said = house.upwell("setup", "--yes", "--only", "hooks,servers")
    assert "claude: none; upwell's plugin has them" in said
    assert settings.read_text() == before
    wrapped = json.loads((user / ".claude.json").read_text())["mcpServers"]
    assert list(wrapped) == ["up"]
    assert "wrap" in wrapped["up"]["args"]
    assert "upwell" in (user / ".gemini" / "settings.json").read_text()
    house.upwell("setup", "--undo", "--yes")
    assert json.loads((user / ".claude.json").read_text()) == servers
    assert settings.read_text() == before


def test_hooks_come_back_with_setup_when_the_plugin_is_gone(house: House) -> None:
    settings = Path(house.environment["HOME"]) / ".claude" / "settings.json"
    settings.write_text(json.dumps({"enabledPlugins": {}}))
    house.upwell("setup", "--yes", "--only", "hooks")
    assert "upwell-hook" in settings.read_text()


def test_doctor_names_the_plugin_and_tells_versions_apart(house: House, tmp_path: Path) -> None:
    def row() -> dict[str, Any]:
        command = [sys.executable, "-P", "-m", "upwell", "doctor", "--json"]
        done = subprocess.run(command, env=house.environment, capture_output=True)
        part = json.loads(done.stdout)["parts"]["plugin claude"]
        assert isinstance(part, dict)
        return part

    assert row()["ok"]
    assert f"version {__version__}" in row()["detail"]
    plugin = tmp_path / "old"
    write(Path(house.environment["HOME"]), copied(plugin)["claude"])
    assert "its files are gone" in row()["detail"]
    plugin.mkdir()
    (plugin / "run").write_text("version=0.1.9\n")
    assert not row()["ok"]
    assert f"version 0.1.9, but upwell is version {__version__}" in row()["detail"]
