"""The plugins of agents in `plugins/` are those that `dev/plugins.py` generates."""

import json
import os
import re
from pathlib import Path

import pytest
from dev.plugins import SHARED, SHARING, SharedPlugin, files, hooks

from upwell.ground.files import LAUNCHER
from upwell.hook import client
from upwell.hosts import HOSTS
from upwell.hosts.installation import Installation
from upwell.tools.options import FEW

ROOT = Path(__file__).parents[1]
SKILLS = sorted(SHARED.glob("skills/*/SKILL.md"))


def test_the_files_are_the_generated_ones() -> None:
    different = [name for name, text in files().items() if (ROOT / name).read_text() != text]
    assert different == [], "run .venv/bin/python dev/plugins.py"
    assert os.access(SHARED / "run", os.X_OK)


@pytest.mark.parametrize("plugin", SHARING, ids=lambda plugin: plugin.host)
def test_a_plugin_has_the_hooks_that_an_installation_writes(plugin: SharedPlugin) -> None:
    host = HOSTS[plugin.host].hooks
    own = Installation(user_folder=Path(), environment={}, command=("upwell-hook",), guards=True)
    installed = json.loads(host.with_ours("", own))["hooks"]
    of_plugin = hooks(plugin.host, "run")["hooks"]
    assert of_plugin.keys() == installed.keys() >= host.guard_matchers.keys()
    for event, entries in installed.items():
        assert [entry.get("matcher") for entry in of_plugin[event]] == [
            entry.get("matcher") for entry in entries
        ]


@pytest.mark.parametrize("plugin", SHARING, ids=lambda plugin: plugin.host)
def test_a_manifest_names_files_that_exist(plugin: SharedPlugin) -> None:
    manifest = json.loads((SHARED / plugin.manifest).read_text())
    assert (SHARED / manifest["hooks"]).is_file()
    (listed,) = json.loads((ROOT / plugin.marketplace).read_text())["plugins"]
    source = listed["source"]
    assert ROOT / (source if isinstance(source, str) else source["path"]) == SHARED


def test_the_client_knows_the_files_with_the_hooks_of_agents_that_have_a_plugin() -> None:
    own = Installation(user_folder=Path("/u"), environment={}, command=())
    assert {plugin.host for plugin in SHARING} <= client.HOOK_FILES.keys()
    for host, (variable, folder, name) in client.HOOK_FILES.items():
        assert HOSTS[host].hooks.path(own) == Path("/u", folder, name)
        elsewhere = Installation(
            user_folder=Path("/u"), environment={variable: "/else"}, command=()
        )
        assert HOSTS[host].hooks.path(elsewhere) == Path("/else", name)
    assert LAUNCHER.encode() == client.LAUNCHER


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.parent.name)
def test_a_skill_names_tools_that_exist(skill: Path) -> None:
    text = skill.read_text()
    head = re.match(r"---\nname: (\S+)\ndescription: (.{20,1024})\n---\n", text)
    assert head
    assert head[1] == skill.parent.name
    called = set(re.findall(r"`(\w+)\(", text))
    assert called
    assert called <= set(FEW)
