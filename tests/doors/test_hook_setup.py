"""Hooks are set up on the command line, and the installed commands run as the agent would run
them."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.doors.hook_events import claude_like, copilot_read, opencode_read
from tests.doors.hooked import House

NODE = Path(sys.executable).with_name("node")
DRIVER = """
import { Upwell } from PLUGIN
const hooks = await Upwell({ directory: process.argv[2] })
const session = { type: "session.created", properties: { info: { id: "ses_9" } } }
await hooks.event({ event: session })
const parts = [{ type: "text", text: "When does the kelp dryer run?" }]
await hooks["chat.message"]({ sessionID: "ses_9" }, { parts })
const call = { tool: "read", sessionID: "ses_8", callID: "c1" }
const args = { filePath: process.argv[2] + "/src/kelp.py" }
await hooks["tool.execute.before"](call, { args })
const output = { title: "", output: "x = 1", metadata: {} }
await hooks["tool.execute.after"](call, output)
await hooks.event({ event: { type: "session.idle", properties: { sessionID: "ses_9" } } })
const prompt = parts.map((part) => part.text).join("\\n")
console.log(JSON.stringify({ prompt, read: output.output }))
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "house")
    house.keep(
        [
            {"text": "The kelp dryer runs every Tuesday at 06:40 by cron"},
            {"text": "Kelp weights are kept in grams", "paths": ["src/kelp.py"]},
            *({"text": f"A note about {word}"} for word in ("rope", "sail", "mast", "keel")),
        ]
    )
    house.upwell("remember", "--pin", "Never commit to the main branch")
    yield house
    house.stop()


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "no daemon"])
def test_the_opencode_plugin_in_a_real_runtime(house: House, tmp_path: Path, warm: bool) -> None:
    house.upwell("hook", "install", "opencode", "--apply")
    home = Path(house.environment["HOME"])
    plugin = home / ".config" / "opencode" / "plugins" / "upwell.js"
    copy = tmp_path / "plugin.mjs"
    shutil.copy(plugin, copy)
    if warm:
        house.start()
    driver = tmp_path / "driver.mjs"
    driver.write_text(DRIVER.replace("PLUGIN", json.dumps(str(copy))))
    done = subprocess.run(
        [str(NODE), str(driver), str(house.project)],
        env=house.environment,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()
    reply = json.loads(done.stdout)
    assert reply["prompt"].startswith("When does the kelp dryer run?")
    assert reply["read"].startswith("x = 1")
    if warm:
        assert "Never commit to the main branch" in reply["prompt"]
        assert "Tuesday at 06:40" in reply["prompt"]
        assert "kept in grams" in reply["read"]


def test_the_installed_command_answers_events(house: House) -> None:
    """The command in the settings, run by a shell as Claude Code runs it."""
    shown = house.upwell("hook", "install", "claude")
    assert "+++ " in shown
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    assert not settings.exists()
    house.upwell("hook", "install", "claude", "--apply")
    group = json.loads(settings.read_text())["hooks"]["UserPromptSubmit"][0]
    house.start()
    event = claude_like(
        "s9", str(house.project), "UserPromptSubmit", prompt="When does the kelp dryer run?"
    )
    done = subprocess.run(
        ["sh", "-c", group["hooks"][0]["command"]],
        input=json.dumps(event).encode(),
        env=house.environment,
        capture_output=True,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"Tuesday at 06:40" in done.stdout


@pytest.mark.parametrize("host", ["claude", "copilot", "opencode"])
def test_an_agent_without_the_variable_finds_the_same_home(house: House, host: str) -> None:
    """The hook is a shell command, a program with arguments, or a plugin."""
    house.upwell("hook", "install", host, "--apply")
    (path,) = [
        row["file"]
        for row in json.loads(house.upwell("hook", "hosts", "--json"))["hosts"]
        if row["host"] == host
    ]
    written = Path(path).read_text()
    assert str(house.home) in written
    bare = {k: v for k, v in house.environment.items() if k != "UPWELL_HOME"}
    house.start()
    cwd = str(house.project)
    if host == "claude":
        entry = json.loads(written)["hooks"]["UserPromptSubmit"][0]["hooks"][0]
        command = ["sh", "-c", entry["command"]]
        event = claude_like("s9", cwd, "UserPromptSubmit", prompt="When does the kelp dryer run?")
    elif host == "copilot":
        entry = json.loads(written)["hooks"]["postToolUse"][0]
        command = [entry["exec"], *entry["args"]]
        event = copilot_read(cwd, house.file("kelp.py"))
    else:
        named = re.search(r"const COMMAND = (\[.*\])", written)
        assert named
        command = [*json.loads(named[1]), "opencode", "tool.execute.after"]
        event = opencode_read(cwd, house.file("kelp.py"))
    body = json.dumps(event).encode()
    done = subprocess.run(command, input=body, env=bare, capture_output=True, timeout=20)
    assert b"06:40" in done.stdout or b"grams" in done.stdout, done.stderr
    assert not Path(bare["HOME"], ".local/share/upwell").exists()
    house.upwell("hook", "uninstall", host, "--apply")
    assert not Path(path).exists()


def test_the_default_home_is_not_named_in_commands(house: House) -> None:
    usual = str(Path(house.environment["HOME"], ".local/share/upwell"))
    house.environment["UPWELL_HOME"] = usual
    assert "--home" not in house.upwell("hook", "install", "claude")
    house.environment.pop("UPWELL_HOME")
    assert "--home" not in house.upwell("hook", "install", "claude")


def test_a_hook_without_its_program_blocks_nothing(house: House) -> None:
    house.upwell("hook", "install", "claude", "--apply")
    settings = Path(house.environment["HOME"], ".claude", "settings.json")
    command = json.loads(settings.read_text())["hooks"]["UserPromptSubmit"][0]["hooks"][0]
    removed = command["command"].replace("upwell-hook", "no-such-launcher")
    done = subprocess.run(["sh", "-c", removed], input=b"{}", capture_output=True, timeout=20)
    assert done.returncode == 0
    assert done.stdout == b""


def test_hosts_are_listed_with_their_state(upwell: Upwell) -> None:
    rows = {row["host"]: row for row in upwell("hook", "hosts", "--json").json["hosts"]}
    assert not rows["cursor"]["installed"]
    assert upwell("hook", "install", "cursor", "--apply").code == 0
    rows = {row["host"]: row for row in upwell("hook", "hosts", "--json").json["hosts"]}
    assert rows["cursor"]["installed"]
    assert upwell("hook", "uninstall", "cursor", "--apply").code == 0
    assert not Path(rows["cursor"]["file"]).exists()


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (("hook", "install", "emacs"), 2, "claude"),
        (("hook", "install"), 2, "HOST"),
        (("hook", "export", "emacs"), 2, "claude"),
        (("hook", "--help"), 0, "install"),
        (("daemon", "stop"), 0, ""),
    ],
)
def test_wrong_usage_is_reported(
    upwell: Upwell, args: tuple[str, ...], code: int, word: str
) -> None:
    done = upwell(*args)
    assert done.code == code
    assert word in done.out + done.err


def test_the_export_is_an_instruction(upwell: Upwell, tmp_path: Path) -> None:
    assert "memory_context" in upwell("hook", "export", "codex").out
    assert upwell("hook", "export", "claude", "--apply").code == 0
    assert "mcp__upwell__upwell__memory_context" in (tmp_path / "CLAUDE.md").read_text()
    (tmp_path / "CLAUDE.md").write_text("mine")
    assert upwell("hook", "export", "claude", "--apply").code == 2
    assert (tmp_path / "CLAUDE.md").read_text() == "mine"


def test_every_daemon_of_the_user_is_listed(house: House, upwell: Upwell) -> None:
    house.start()
    listed = {row["home"]: row for row in upwell("daemon", "status", "--json").json["daemons"]}
    mine = listed[str(house.home)]
    assert mine["answers"]
    assert 0 < mine["rss_bytes"] < 100_000_000
    house.upwell("daemon", "stop")
    listed = {row["home"]: row for row in upwell("daemon", "status", "--json").json["daemons"]}
    assert str(house.home) not in listed


def test_a_second_daemon_gives_way(house: House) -> None:
    house.start()
    house.upwell("daemon", "run")
    assert house.upwell("daemon", "start").startswith("the daemon of")
