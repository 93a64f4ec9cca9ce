"""Installed hooks outlive an upgrade of Python, and `upwell doctor` notices those that do not."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.hooked import House
from upwell.ground.files import LAUNCHER

OLD = "/gone/bin/python -I -S /gone/upwell/hook/client.py claude || true"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    yield house
    house.stop()


def settings_of(house: House) -> Path:
    return Path(house.environment["HOME"], ".claude", "settings.json")


def command_of(house: House) -> str:
    entries = json.loads(settings_of(house).read_text())["hooks"]["UserPromptSubmit"]
    return str(entries[0]["hooks"][0]["command"])


def hook_of(house: House) -> dict[str, object]:
    command = [sys.executable, "-P", "-m", "upwell", "doctor", "--json"]
    done = subprocess.run(command, env=house.environment, capture_output=True)
    part = json.loads(done.stdout)["parts"]["hook claude"]
    assert isinstance(part, dict)
    return part


def test_a_hook_runs_again_as_soon_as_upwell_has_run_at_its_new_place(house: House) -> None:
    house.upwell("hook", "install", "claude", "--apply")
    launcher = house.home / LAUNCHER
    right = launcher.read_text()
    launcher.write_text(right.replace("client=/", "client=/gone/"))
    before = subprocess.run(
        ["sh", "-c", command_of(house)], input=b"{}", env={"PATH": "/bin"}, capture_output=True
    )
    assert (before.returncode, before.stdout) == (0, b"{}\n")
    assert b"no longer at" in before.stderr
    assert hook_of(house)["ok"]
    assert launcher.read_text() == right


def test_doctor_runs_the_command_that_the_agent_runs(house: House) -> None:
    house.upwell("hook", "install", "claude", "--apply")
    assert hook_of(house)["ok"]
    path = settings_of(house)
    path.write_text(path.read_text().replace(command_of(house), OLD))
    part = hook_of(house)
    assert not part["ok"]
    assert "wrote to stderr" in str(part["detail"])
    assert part["hint"] == "run `upwell hook install claude --apply`"
    house.upwell("hook", "install", "claude", "--apply")
    assert hook_of(house)["ok"]


def test_doctor_names_the_setting_that_keeps_the_agent_from_running_its_hooks(house: House) -> None:
    house.upwell("hook", "install", "claude", "--apply")
    path = settings_of(house)
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "disableAllHooks": True}))
    part = hook_of(house)
    assert not part["ok"]
    assert f"Claude Code does not run it: disableAllHooks in {path}" in str(part["detail"])
    path.write_text(json.dumps({**settings, "disableAllHooks": False}))
    assert hook_of(house)["ok"]
