"""What `dev/plugins.py` generates for Gemini CLI, OpenCode, Cursor and the MCP registry, and what
`dev/bundles.py` builds of it."""

import json
import re
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dev.bundles import desktop_bundle, opencode_package
from dev.plugins import ROOT, hooks

from upwell import __version__
from upwell.hosts import HOSTS
from upwell.hosts.installation import Installation

CURSOR_FIELDS = set(
    """
    name displayName description version author publisher homepage repository license logo keywords
    category tags commands agents skills rules hooks variables mcpServers
    """.split()
)
"""The fields in the schema of cursor/plugins, which allows no other."""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    wheel = tmp_path / f"upwell-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    return wheel


def matchers(hooks: Mapping[str, Any]) -> dict[str, list[str | None]]:
    return {event: [entry.get("matcher") for entry in hooks[event]] for event in hooks}


def test_the_extension_has_the_hooks_that_an_installation_writes_for_gemini() -> None:
    own = Installation(user_folder=Path(), environment={}, command=("RUN",), guards=True)
    installed = json.loads(HOSTS["gemini"].hooks.with_ours("", own))["hooks"]
    extension = json.loads((ROOT / "hooks" / "hooks.json").read_text())["hooks"]
    assert matchers(extension) == matchers(installed)
    limits = {
        event: handler["timeout"]
        for event, [entry] in extension.items()
        for handler in entry["hooks"]
    }
    assert limits.pop("SessionStart") == 60_000
    assert set(limits.values()) == {10_000}


def test_the_manifest_for_cursor_has_only_fields_of_its_schema() -> None:
    manifest = json.loads((ROOT / "plugins/upwell/.cursor-plugin/plugin.json").read_text())
    assert manifest.keys() <= CURSOR_FIELDS
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", manifest["name"])
    assert hooks("cursor", "run")["version"] == 1


def test_the_entry_of_the_registry_starts_the_server_of_this_version() -> None:
    entry = json.loads((ROOT / "server.json").read_text())
    (package,) = entry["packages"]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    assert entry["version"] == package["version"] == __version__
    words = [word.get("value") or word["name"] for word in package["packageArguments"]]
    assert words == ["serve", "--tools"]
    assert package["identifier"] == "upwell"


def test_the_bundle_for_claude_desktop_starts_upwell_from_its_wheel(
    tmp_path: Path, wheel: Path
) -> None:
    with zipfile.ZipFile(desktop_bundle(wheel, tmp_path)) as bundle:
        manifest = json.loads(bundle.read("manifest.json"))
        names = set(bundle.namelist())
        project = bundle.read("pyproject.toml").decode()
    assert manifest["manifest_version"] == "0.4"
    assert manifest["version"] == __version__
    assert manifest["server"]["entry_point"] in names
    assert {wheel.name, "LICENSE"} <= names
    assert f'path = "{wheel.name}"' in project


def test_the_package_for_opencode_contains_what_it_runs(tmp_path: Path, wheel: Path) -> None:
    package = opencode_package(wheel, tmp_path)
    with tarfile.open(package) as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
    assert {"index.js", "package.json", "run", wheel.name} <= names
    assert sum(name.endswith("SKILL.md") for name in names) == 2
    assert package.name == f"opencode-upwell-{__version__}.tgz"
