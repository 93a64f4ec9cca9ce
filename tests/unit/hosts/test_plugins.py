"""Finding upwell's extension, package or plugin among the files of an agent."""

import json
from pathlib import Path

import pytest

from upwell.hosts.installation import Installation
from upwell.hosts.plugins import Plugin, plugin_of


@pytest.fixture
def user(tmp_path: Path) -> Installation:
    return Installation(user_folder=tmp_path, environment={}, command=())


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


@pytest.mark.parametrize("linked", [False, True], ids=["copied", "linked"])
def test_an_extension_of_gemini_until_it_is_disabled(
    tmp_path: Path, user: Installation, linked: bool
) -> None:
    assert plugin_of("gemini", user) is None
    extensions = tmp_path / ".gemini" / "extensions"
    root = tmp_path / "code" if linked else extensions / "upwell"
    source = {"source": str(root), "type": "link" if linked else "local"}
    put(extensions / "upwell" / ".gemini-extension-install.json", json.dumps(source))
    folder = put(root / "plugins" / "upwell" / "run", "version=1.2.3\n")
    found = plugin_of("gemini", user)
    assert found == Plugin(folder)
    assert found
    assert found.version == "1.2.3"
    off = {"upwell": {"overrides": [f"!{tmp_path}/*"]}}
    put(extensions / "extension-enablement.json", json.dumps(off))
    assert plugin_of("gemini", user) is None


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("{}/code/opencode", "code/opencode"),
        ("file://{}/code/opencode", "code/opencode"),
        ("opencode-upwell", "opencode-upwell@latest"),
        ("opencode-upwell@1.2.3", "opencode-upwell@1.2.3"),
        ("opencode-upwell@file:{}/a.tgz", "opencode-upwell@file:{}/a.tgz"),
    ],
)
def test_a_package_of_opencode(tmp_path: Path, user: Installation, entry: str, place: str) -> None:
    listed = {"plugin": ["another", entry.format(tmp_path)]}
    put(tmp_path / ".config" / "opencode" / "opencode.json", json.dumps(listed))
    assert plugin_of("opencode", user) is None
    kept = f".cache/opencode/packages/{place.format(tmp_path)}/node_modules/opencode-upwell"
    folder = tmp_path / (kept if place.startswith("opencode-upwell") else place)
    put(folder / "package.json", json.dumps({"name": "opencode-upwell"}))
    assert plugin_of("opencode", user) == Plugin(folder)


def test_a_plugin_of_cursor(tmp_path: Path, user: Installation) -> None:
    assert plugin_of("cursor", user) is None
    folder = put(tmp_path / ".cursor" / "plugins" / "local" / "upwell" / "run", "version=1\n")
    assert plugin_of("cursor", user) == Plugin(folder)
