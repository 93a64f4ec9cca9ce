"""Hooks in agents' own files: shown first, written atomically, removed without a trace."""

import json
import os
import stat
from pathlib import Path

import pytest
from msgspec import structs

from upwell.ground.errors import ConfigError, UsageError
from upwell.hosts import HOSTS, claude
from upwell.hosts.install import Installer
from upwell.hosts.installation import Installation
from upwell.hosts.jsonc import parse
from upwell.hosts.settings import runs_our_hook

COMMAND = ("/opt/my tools/python", "-I", "-S", "/opt/lib/upwell/hook/client.py")
JSON_HOSTS = [name for name in HOSTS if name != "opencode"]
FOREIGN = {
    "claude": """{
    // my own settings
    "model": "opus",
    "hooks": {
        "PostToolUse": [
            {"matcher": "Edit", "hooks": [{"type": "command", "command": "prettier"}]}, // mine
        ],
        "Stop": [],
    },
    "env": {"N": 1.50}
}
""",
    "codex": '{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}',
    "gemini": '{\n\t"theme": "GitHub", /* dark */\n\t"mcpServers": {}\n}',
    "cursor": '{\n  "version": 1,\n  "hooks": {"stop": [{"command": "upwell-like hook x"}]}\n}\n',
    "copilot": '{"version": 1, "hooks": {}}',
    "vscode": '{"hooks": {"Stop": [{"type": "command", "command": "./stop.sh"}]}}\n',
}


def installer(where: Installation, record: Path) -> Installer:
    return Installer(where, record, {name: host.hooks for name, host in HOSTS.items()})


@pytest.fixture
def where(tmp_path: Path) -> Installation:
    return Installation(
        user_folder=tmp_path / "me", environment={}, command=COMMAND, socket="/tmp/s.sock"
    )


@pytest.fixture
def hooks(where: Installation, tmp_path: Path) -> Installer:
    (tmp_path / "home").mkdir()
    return installer(where, tmp_path / "home" / "hooks.json")


def put(hooks: Installer, host: str, text: str) -> Path:
    path = hooks.path_of(host)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("host", HOSTS)
def test_an_install_into_no_file_is_undone_completely(hooks: Installer, host: str) -> None:
    plan = hooks.installing(host)
    assert plan.changes
    assert not plan.path.exists()
    assert str(plan.path) in plan.diff
    assert hooks.apply(plan) == ""
    assert hooks.installed() == {host: str(plan.path)}
    assert host in hooks.present()
    assert not hooks.installing(host).changes
    assert plan.next_step, f"the hooks of {plan.agent} need a next_step"
    hooks.apply(hooks.uninstalling(host))
    assert not plan.path.exists()
    assert not hooks.installed()


@pytest.mark.parametrize("host", JSON_HOSTS)
def test_a_file_of_others_gets_its_bytes_back(hooks: Installer, host: str) -> None:
    path = put(hooks, host, FOREIGN[host])
    before = parse(FOREIGN[host]).value
    copy = hooks.apply(hooks.installing(host))
    assert Path(copy).read_text() == FOREIGN[host]
    value = parse(path.read_text()).value
    stored = [entry for entries in before.get("hooks", {}).values() for entry in entries]
    now = [entry for entries in value["hooks"].values() for entry in entries]
    assert all(entry in now for entry in stored)
    assert {k: v for k, v in before.items() if k != "hooks"}.items() <= value.items()
    hooks.apply(hooks.uninstalling(host))
    assert path.read_text() == FOREIGN[host]


@pytest.mark.parametrize("host", JSON_HOSTS)
def test_a_file_changed_since_the_install_loses_only_our_entries(
    hooks: Installer, host: str
) -> None:
    path = put(hooks, host, FOREIGN[host])
    hooks.apply(hooks.installing(host))
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "later": true}')
    hooks.apply(hooks.uninstalling(host))
    left = parse(path.read_text()).value
    assert left.pop("later") is True
    expected = parse(FOREIGN[host]).value
    assert {k: v for k, v in left.get("hooks", {}).items() if v} == {
        k: v for k, v in expected.get("hooks", {}).items() if v
    }
    assert not hooks.installed()


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": []}', '{"hooks": {"Stop": 1}}', "\xff"])
def test_an_unreadable_file_is_not_changed(hooks: Installer, text: str) -> None:
    path = put(hooks, "claude", "")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        hooks.installing("claude")
    assert path.read_bytes() == text.encode("latin-1")


def test_a_foreign_plugin_is_not_changed(hooks: Installer) -> None:
    put(hooks, "opencode", "export const Mine = 1\n")
    with pytest.raises(ConfigError):
        hooks.installing("opencode")


def test_a_link_stays_a_link_and_a_mode_its_mode(hooks: Installer, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    path = hooks.path_of("claude")
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    hooks.apply(hooks.installing("claude"))
    assert path.is_symlink()
    assert "client.py" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_copies_never_replace_copies(hooks: Installer) -> None:
    path = put(hooks, "claude", '{"a": 1}')
    first = hooks.apply(hooks.installing("claude"))
    path.write_text('{"a": 2}')
    second = hooks.apply(hooks.installing("claude"))
    assert first != second
    assert Path(first).read_text() == '{"a": 1}'
    hooks.apply(hooks.uninstalling("claude"))
    assert path.read_text() == '{"a": 2}'


def test_a_change_in_between_is_noticed(hooks: Installer) -> None:
    path = put(hooks, "claude", "{}")
    plan = hooks.installing("claude")
    path.write_text('{"new": 1}')
    with pytest.raises(ConfigError):
        hooks.apply(plan)
    assert path.read_text() == '{"new": 1}'


@pytest.mark.parametrize(
    ("host", "variable", "end"),
    [
        ("claude", "CLAUDE_CONFIG_DIR", "x/settings.json"),
        ("codex", "CODEX_HOME", "x/hooks.json"),
        ("copilot", "COPILOT_HOME", "x/hooks/upwell.json"),
        ("gemini", "GEMINI_CLI_HOME", "x/.gemini/settings.json"),
        ("opencode", "OPENCODE_CONFIG_DIR", "x/plugins/upwell.js"),
        ("opencode", "XDG_CONFIG_HOME", "x/opencode/plugins/upwell.js"),
    ],
)
def test_the_hosts_own_variables_apply(
    where: Installation, host: str, variable: str, end: str
) -> None:
    moved = Installation(
        user_folder=where.user_folder, environment={variable: "/x"}, command=COMMAND
    )
    assert str(HOSTS[host].hooks.path(moved)).endswith(end)


def test_an_unknown_host_is_named() -> None:
    where = Installation(user_folder=Path("/nowhere"), environment={}, command=COMMAND)
    with pytest.raises(UsageError, match="claude"):
        installer(where, Path("/nowhere/hooks.json")).installing("emacs")


@pytest.mark.parametrize(
    ("handler", "ours"),
    [
        ({"command": "'/a b/python' -I -S /x/upwell/hook/client.py claude || true"}, True),
        ({"command": "/usr/bin/upwell hook claude"}, True),
        ({"exec": "/p", "args": ["-I", "-S", "/x/upwell/hook/client.py", "copilot"]}, True),
        ({"command": "echo /x/upwell/hook/client.py"}, False),
        ({"command": "upwell-lint hook"}, False),
        ({"command": "upwell serve"}, False),
        ({"command": "echo 'open"}, False),
        ({"command": 3}, False),
        ("upwell hook claude", False),
    ],
)
def test_our_entries_are_known_by_their_words(handler: object, ours: bool) -> None:
    assert runs_our_hook(handler) is ours


def test_a_folder_that_cannot_be_written_changes_nothing(hooks: Installer) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    path = put(hooks, "claude", "{}")
    path.parent.chmod(0o500)
    try:
        with pytest.raises(Exception, match="cannot write"):
            hooks.apply(hooks.installing("claude"))
    finally:
        path.parent.chmod(0o700)
    assert path.read_text() == "{}"


def test_an_uninstall_after_two_installs_leaves_no_entry_of_ours(
    where: Installation, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    notes = tmp_path / "home" / "hooks.json"
    old = installer(structs.replace(where, command=(*COMMAND[:3], "/old" + COMMAND[3])), notes)
    path = put(old, "claude", FOREIGN["claude"])
    old.apply(old.installing("claude"))
    path.write_text(path.read_text().replace('"opus"', '"sonnet"'))
    new = installer(where, notes)
    new.apply(new.installing("claude"))
    assert "/old/" not in path.read_text()
    assert path.read_text().count("client.py") == len(claude.HOOKS.matchers)
    new.apply(new.uninstalling("claude"))
    left = parse(path.read_text()).value
    assert left["model"] == "sonnet"
    assert left["hooks"] == {"PostToolUse": parse(FOREIGN["claude"]).value["hooks"]["PostToolUse"]}


def test_gemini_is_asked_for_real_compressions_only_and_shows_a_name(where: Installation) -> None:
    """Gemini CLI announces a compression before every request. For a handler without a name, it
    shows the command.
    """
    hooks = json.loads(HOSTS["gemini"].hooks.with_ours("", where))["hooks"]
    assert [group["matcher"] for group in hooks["PreCompress"]] == ["manual"]
    assert {handler["name"] for groups in hooks.values() for handler in groups[0]["hooks"]} == {
        "upwell"
    }
