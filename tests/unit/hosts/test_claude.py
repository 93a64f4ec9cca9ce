"""The settings with which Claude Code ignores the user's hooks."""

import json
from pathlib import Path

import pytest

from upwell.hosts import claude
from upwell.hosts.installation import Installation

MANAGED = "managed-settings.json"


@pytest.mark.parametrize(
    ("file", "settings", "named"),
    [
        (f"etc/{MANAGED}", {"allowManagedHooksOnly": True}, "allowManagedHooksOnly in "),
        ("etc/managed-settings.d/10-hooks.json", {"disableAllHooks": True}, "disableAllHooks in "),
        ("home/.claude/settings.json", {"disableAllHooks": True}, "disableAllHooks in "),
        ("work/.claude/settings.local.json", {"disableAllHooks": True}, "disableAllHooks in "),
        ("home/.claude/settings.json", {"allowManagedHooksOnly": True}, ""),
        (f"etc/{MANAGED}", {"disableAllHooks": False}, ""),
        (f"etc/{MANAGED}", ["disableAllHooks"], ""),
    ],
)
def test_a_setting_that_switches_hooks_off_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, settings: object, named: str
) -> None:
    monkeypatch.setattr(claude, "MANAGED_FOLDERS", (tmp_path / "etc", tmp_path / "missing"))
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(settings))
    user = Installation(user_folder=tmp_path / "home", environment={}, command=("upwell",))
    assert claude.HOST.hooks_off is not None
    found = claude.HOST.hooks_off(user, tmp_path / "work")
    assert found.startswith(f"{named}{path}" if named else "")
    assert bool(found) == bool(named)
