"""Hooks that are HTTP requests: installed, run as the host documents them, and uninstalled."""

import http.client
import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.doors.hook_events import claude_like, claude_read, copilot_read
from tests.doors.hooked import House
from upwell.hook.control import daemon_at

SETTINGS = """{
  // mine
  "model": "opus",
  "hooks": {
    "PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "http", "url": "http://127.0.0.1:1/x"}]}]
  }
}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    kelp = {"text": "Kelp weights are kept in grams", "paths": ["src/kelp.py", "src/dulse.py"]}
    house.keep([kelp, *({"text": f"A note about {word}"} for word in ("rope", "sail"))])
    (house.home / "config.toml").write_text(f"hook.port = {free_port()}\n")
    yield house
    house.stop()


def post(handler: Mapping[str, Any], event: Mapping[str, Any], env: Mapping[str, str]) -> bytes:
    """Post the event as the host does: the variables that the entry allows are filled into the
    headers."""
    allowed = handler.get("allowedEnvVars", [])
    headers = {
        name: re.sub(r"\$(\w+)", lambda m: env.get(m[1], "") if m[1] in allowed else "", value)
        for name, value in handler["headers"].items()
    }
    address = urlsplit(handler["url"])
    assert address.hostname == "127.0.0.1"
    body = json.dumps(event).encode()
    sent = {"Content-Type": "application/json", "Connection": "close", **headers}
    with closing(
        http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=20)
    ) as connection:
        connection.request("POST", address.path, body, sent)
        answer = connection.getresponse()
        reply = answer.read()
    assert answer.status == 200, reply
    return reply


def ready(house: House) -> None:
    house.start()
    deadline = time.monotonic() + 20
    port = int((house.home / "config.toml").read_text().split("=")[1])
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("nobody listens")


def test_claude_posts_tool_events_and_runs_commands_for_the_rest(house: House) -> None:
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    settings.parent.mkdir()
    settings.write_text(SETTINGS)
    shown = house.upwell("hook", "install", "claude", "--http")
    assert settings.read_text() == SETTINGS
    token = (house.home / "token").read_text().strip()
    assert token not in shown
    reply = house.upwell("hook", "install", "claude", "--http", "--apply")
    assert f'export UPWELL_TOKEN="$(cat {house.home}/token)"' in reply
    written = settings.read_text()
    assert token not in written
    assert "// mine" in written
    plain = json.loads(re.sub(r"// mine", "", written))["hooks"]
    kinds = {
        name: [hook["type"] for g in groups for hook in g["hooks"]]
        for name, groups in plain.items()
    }
    assert kinds.pop("PostToolUse") == ["http", "http"]
    assert kinds.pop("PostToolUseFailure") == ["http"]
    assert set(map(tuple, kinds.values())) == {("command",)}
    ready(house)
    event = claude_read(str(house.project), house.file("kelp.py"))
    answer = post(plain["PostToolUse"][1]["hooks"][0], event, {"UPWELL_TOKEN": token})
    assert "kept in grams" in json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    house.upwell("hook", "uninstall", "claude", "--apply")
    assert settings.read_text() == SETTINGS


def test_uninstalling_from_an_edited_file_removes_only_our_requests(house: House) -> None:
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    settings.parent.mkdir()
    settings.write_text(SETTINGS)
    house.upwell("hook", "install", "claude", "--http", "--apply")
    settings.write_text(settings.read_text().replace("opus", "sonnet"))
    house.upwell("hook", "uninstall", "claude", "--apply")
    assert settings.read_text() == SETTINGS.replace("opus", "sonnet")


def test_from_requests_to_commands_and_back(house: House) -> None:
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    house.upwell("hook", "install", "claude", "--http", "--apply")
    first = settings.read_text()
    assert "already has the hooks" in house.upwell("hook", "install", "claude", "--http")
    house.upwell("hook", "install", "claude", "--apply")
    assert '"http"' not in settings.read_text()
    house.upwell("hook", "install", "claude", "--http", "--apply")
    assert json.loads(settings.read_text()) == json.loads(first)
    house.upwell("hook", "uninstall", "claude", "--apply")
    assert not settings.exists()


def test_copilot_posts_with_the_token_in_its_private_file(house: House) -> None:
    shown = house.upwell("hook", "install", "copilot", "--http", "--apply")
    token = (house.home / "token").read_text().strip()
    assert token not in shown
    assert "COPILOT_HOOK_ALLOW_LOCALHOST=1" in shown
    file = Path(house.environment["HOME"], ".copilot", "hooks", "upwell.json")
    assert file.stat().st_mode & 0o777 == 0o600
    hooks = json.loads(file.read_text())["hooks"]
    (entry,) = hooks["postToolUse"]
    assert "allowedEnvVars" not in entry
    assert hooks["sessionStart"][0]["type"] == "command"
    ready(house)
    event = copilot_read(str(house.project), house.file("dulse.py"))
    assert "kept in grams" in json.loads(post(entry, event, {}))["additionalContext"]
    house.upwell("hook", "uninstall", "copilot", "--apply")
    assert not file.exists()


def test_the_session_start_command_starts_the_daemon_that_takes_the_requests(house: House) -> None:
    house.upwell("hook", "install", "claude", "--http", "--apply")
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    hooks = json.loads(settings.read_text())["hooks"]
    begun = claude_like("s", str(house.project), "SessionStart", source="startup")
    command = ["sh", "-c", hooks["SessionStart"][0]["hooks"][0]["command"]]
    done = subprocess.run(
        command, input=json.dumps(begun).encode(), env=house.environment, timeout=30
    )
    assert done.returncode == 0
    ready(house)
    token = (house.home / "token").read_text().strip()
    event = claude_read(str(house.project), house.file("kelp.py"))
    handler = hooks["PostToolUse"][0]["hooks"][0]
    assert b"kept in grams" in post(handler, event, {"UPWELL_TOKEN": token})
    with pytest.raises(AssertionError, match="token"):
        post(handler, event, {})


def test_a_changed_port_takes_effect(house: House) -> None:
    house.start()
    pid = daemon_at(str(house.home))
    (house.home / "config.toml").write_text(f"hook.port = {free_port()}\n")
    ready(house)
    now = daemon_at(str(house.home))
    assert pid
    assert now
    assert pid.pid == now.pid


@pytest.mark.parametrize(
    ("host", "config", "words"),
    [
        ("gemini", "hook.port = 47620\n", "supported: claude, copilot"),
        ("emacs", "hook.port = 47620\n", "not a known host"),
        ("claude", "", "write `port = 47620`"),
    ],
)
def test_impossible_settings_are_refused(house: House, host: str, config: str, words: str) -> None:
    (house.home / "config.toml").write_text(config)
    assert words in house.refused("hook", "install", host, "--http", "--apply")
