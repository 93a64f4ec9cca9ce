"""`upwell setup` by the real command, in the home of a user with two agents and their past
sessions: one question, a proof through each agent's own hook, and undoing it, byte for byte.
"""

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.older import moved_by_init
from upwell.hook.control import daemon_at, end

CLAUDE_SETTINGS = b"""{
  // mine
  "model": "opus",
  "env": {"SERVICE_TOKEN": "ghp_0123456789abcdefghijABCDEFGHIJ012345", "MINE": "of-no-form"},
  "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
}
"""
CLAUDE_JSON = b"""{"numStartups": 7, "mcpServers": {
  "files": {"command": "npx", "args": ["-y", "files-mcp"], "env": {"KEY": "files-secret-1"}}
}}
"""
CODEX_CONFIG = b"""model = "gpt-5"  # the large one

[mcp_servers.docs]
command = "docs-mcp"
"""
RULE = "Never edit generated clients by hand."
QUESTION = "Do all of this?"


class User:
    """A user with Claude Code and Codex, a project, and one past session in each agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "user"
        self.project = self.folder / "code" / "shop"
        self.home = self.folder / ".local" / "share" / "upwell"
        self.write(".claude/settings.json", CLAUDE_SETTINGS, mode=0o644)
        self.write(".claude.json", CLAUDE_JSON)
        self.write(".codex/config.toml", CODEX_CONFIG, mode=0o640)
        self.write("code/shop/.git/HEAD", b"ref: refs/heads/main\n")
        self.write(".claude/projects/-shop/s1.jsonl", self.claude_session())
        self.write(".codex/sessions/2026/01/05/rollout-2.jsonl", self._codex_session())
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "UPWELL_HOOK__TOOL_MS": "8000",
        }

    def run(self, *args: str, code: int = 0, stdin: int = subprocess.DEVNULL) -> tuple[str, str]:
        """stdout and stderr of `upwell`, which must end with the status `code`."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "upwell", *args],
            env=self.environment,
            cwd=self.project,
            stdin=stdin,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == code, done.stderr.decode() + done.stdout.decode()
        return done.stdout.decode(), done.stderr.decode()

    def answer(self, word: str, *args: str, code: int) -> tuple[str, str]:
        """Like `run`, on a terminal: the user types this word, and Enter at what follows."""
        terminal, stdin = pty.openpty()
        try:
            os.write(terminal, word.encode() + b"\n\n")
            return self.run(*args, code=code, stdin=stdin)
        finally:
            os.close(terminal)
            os.close(stdin)

    def state(self) -> dict[str, tuple[int, bytes]]:
        """Mode and content of every file and folder outside upwell's home."""
        return {
            str(path.relative_to(self.folder)): (
                stat.S_IMODE(path.stat().st_mode),
                path.read_bytes() if path.is_file() else b"",
            )
            for path in self.folder.rglob("*")
            if ".local" not in path.parts
        }

    def stop(self) -> None:
        if daemon := daemon_at(str(self.home)):
            assert end(daemon)

    def write(self, name: str, content: bytes, mode: int = 0o600) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def claude_session(self, name: str = "s1", at: str = "2026-01-05T10:00:00Z") -> bytes:
        own = {"sessionId": name, "cwd": str(self.project), "timestamp": at}
        lines: list[object] = [
            {"type": "user", **own, "message": {"role": "user", "content": RULE}}
        ]
        error = "Exit code 2\nerror: the option --lid is required"
        for number, (command, out, failed) in enumerate(
            [("bake bread", error, True), ("bake bread --lid", "done", False)]
        ):
            use = {"type": "tool_use", "id": f"t{number}", "name": "Bash"}
            use["input"] = {"command": command}
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": out}
            called = {"role": "assistant", "content": [use]}
            answered = {"role": "user", "content": [{**result, "is_error": failed}]}
            lines += [{"type": "assistant", **own, "message": called}]
            lines += [{"type": "user", **own, "message": answered}]
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def _codex_session(self) -> bytes:
        text = {"type": "input_text", "text": "Always name the order in a log line."}
        lines = [
            {"type": "session_meta", "payload": {"id": "s2", "cwd": str(self.project)}},
            {
                "type": "response_item",
                "payload": {"type": "message", "role": "user", "content": [text]},
            },
        ]
        at = {"timestamp": "2026-01-05T11:00:00Z"}
        return "".join(f"{json.dumps(at | line)}\n" for line in lines).encode()


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path)
    yield user
    user.stop()


def proposals(user: User) -> list[str]:
    return [item["text"] for item in json.loads(user.run("inbox", "--json")[0])["proposals"]]


def test_without_a_terminal_and_without_yes_it_refuses(user: User) -> None:
    before = user.state()
    out, err = user.run("setup", code=2)
    assert out == ""
    assert "--dry-run" in err
    assert "--yes" in err
    assert len(err.splitlines()) == 1
    assert user.state() == before


def test_a_dry_run_shows_every_change_and_makes_none(user: User) -> None:
    before = user.state()
    out, err = user.run("setup", "--dry-run")
    assert user.state() == before
    assert not (user.folder / ".local").exists()
    for name in (".claude/settings.json", ".claude.json", ".codex/config.toml"):
        assert f"+++ {user.folder / name}" in out
    assert f"+++ {user.folder / '.codex/hooks.json'}" in out
    assert "+capture = true" in out
    assert "1 of claude, 1 of codex" in out
    assert "nothing was changed" in err
    for secret in ("files-secret-1", "ghp_0123456789", "of-no-form"):
        assert secret not in out


def test_on_a_terminal_it_asks_and_takes_no_for_an_answer(user: User) -> None:
    before = user.state()
    out, err = user.answer("n", "setup", code=1)
    assert QUESTION in out + err
    assert f"create {user.folder / '.codex/hooks.json'} (+" in out
    assert "+capture = true" not in out
    assert "nothing was changed" in err
    assert user.state() == before


def test_d_shows_every_changed_line_before_the_answer(user: User) -> None:
    before = user.state()
    out, err = user.answer("d\nn", "setup", code=1)
    assert (out + err).count(QUESTION) == 2
    assert "+capture = true" in out
    assert user.state() == before


def test_one_yes_sets_everything_up_and_proves_it(user: User) -> None:
    out, _ = user.answer("y", "setup", code=0)
    for agent in ("claude", "codex"):
        assert f"tested: {agent} ran its hook" in out
    config = tomllib.loads((user.home / "config.toml").read_text())
    assert config == {"hook": {"capture": True}}
    settings = (user.folder / ".claude/settings.json").read_text()
    assert "say done" in settings
    assert "upwell-hook claude" in settings
    found = proposals(user)
    assert f"next: {len(found)} proposals wait: `upwell inbox`, in the project\n" in out
    assert "more: `upwell learn git`" in out
    assert RULE in found
    assert "Always name the order in a log line." in found
    assert any("bake bread --lid" in text for text in found)
    daemon = daemon_at(str(user.home))
    assert daemon
    assert daemon.state["answered"] >= 2

    assert (user.home / "setup.json").stat().st_mode & 0o777 == 0o600, "it may hold old settings"

    once = user.state()
    again, _ = user.run("setup", "--yes")
    assert "is already set up" in again
    assert user.state() == once
    assert len(proposals(user)) == len(found)


def test_undo_restores_every_byte_and_keeps_what_was_learned(user: User) -> None:
    before = user.state()
    user.run("setup", "--yes")
    user.run("setup", "--yes")
    assert user.state() != before
    shown, _ = user.run("setup", "--undo", "--dry-run")
    assert "learned: proposal" in shown
    assert RULE in shown
    assert user.state() != before
    kept, _ = user.run("setup", "--undo", "--yes")
    assert user.state() == before
    assert "--forget" in kept
    assert not (user.home / "config.toml").exists()
    assert daemon_at(str(user.home)) is None
    assert RULE in proposals(user)
    assert user.run("recall", "--sessions", "clients")[0], "the past sessions stay, too"

    user.run("setup", "--undo", "--forget", "--yes")
    assert proposals(user) == []
    assert not (user.home / "sessions.db").exists()
    assert not (user.home / "setup.json").exists()
    assert "nothing to undo" in user.run("setup", "--undo")[0], "nothing is asked"
    user.run("setup", "--yes")
    assert RULE in proposals(user), "what was forgotten can be learned again"


def test_wrapped_servers_keep_their_places_until_setup_is_undone(user: User) -> None:
    before = user.state()
    out, _ = user.run("setup", "--yes")
    assert "claude: files → wrapped in its place" in out
    assert "tested: claude ran its hook" in out
    claude = json.loads((user.folder / ".claude.json").read_text())["mcpServers"]
    assert list(claude) == ["files", "upwell"]
    assert claude["files"]["args"][-4:] == ["--", "npx", "-y", "files-mcp"]
    assert claude["files"]["env"] == {"KEY": "files-secret-1"}
    codex = tomllib.loads((user.folder / ".codex/config.toml").read_text())["mcp_servers"]
    launcher = Path(claude["files"]["command"])
    launcher.unlink()
    assert f"{launcher} was gone and is there again" in user.run("doctor")[0]
    assert launcher.is_file()
    assert list(codex) == ["docs", "upwell"]
    assert codex["docs"]["args"][-2:] == ["--", "docs-mcp"]
    assert "server" not in tomllib.loads((user.home / "config.toml").read_text())
    once = user.state()
    assert "is already set up" in user.run("setup", "--yes")[0]
    assert user.state() == once

    user.run("setup", "--undo", "--yes")
    assert user.state() == before
    assert not (user.home / "config.toml").exists()


def test_servers_are_unwrapped_even_if_the_record_is_damaged(user: User) -> None:
    user.run("setup", "--yes")
    (user.home / "wrapped.json").write_text("{")
    user.run("setup", "--undo", "--yes")
    claude = json.loads((user.folder / ".claude.json").read_text())["mcpServers"]
    assert claude == json.loads(CLAUDE_JSON)["mcpServers"]
    codex = tomllib.loads((user.folder / ".codex/config.toml").read_text())["mcp_servers"]
    assert codex == {"docs": {"command": "docs-mcp"}}


def test_undo_needs_nothing_of_upwells_home(user: User) -> None:
    """The user deleted the home to start anew; setup and undo then do as if it were the first."""
    user.run("setup", "--yes")
    user.stop()
    user.home.rename(user.home.with_name("lost"))
    said, _ = user.run("setup", "--undo", "--yes")
    assert f"done: {user.folder / '.claude.json'}" in said
    claude = json.loads((user.folder / ".claude.json").read_text())["mcpServers"]
    assert claude == json.loads(CLAUDE_JSON)["mcpServers"]
    assert "upwell" not in (user.folder / ".claude/settings.json").read_text()

    user.run("setup", "--yes")
    user.stop()
    user.home.rename(user.home.with_name("lost-again"))
    user.run("setup", "--yes")
    user.run("setup", "--undo", "--yes")
    assert "upwell" not in (user.folder / ".claude.json").read_text()
    assert "upwell" not in (user.folder / ".claude/settings.json").read_text()


def test_undo_leaves_what_another_home_set_up(user: User) -> None:
    user.run("setup", "--yes")
    once = user.state()
    user.environment["UPWELL_HOME"] = str(user.folder / ".local" / "other")
    assert "nothing to undo" in user.run("setup", "--undo", "--yes")[0]
    assert user.state() == once


def test_undo_restores_every_settings_folder_of_an_agent(user: User) -> None:
    """A user with one folder for work and one of their own, both set up, then undone in one go."""
    folders = {name: user.folder / f".claude-{name}" for name in ("work", "own")}
    for name, folder in folders.items():
        server = {"mcpServers": {name: {"command": f"{name}-mcp"}}}
        user.write(f"{folder.name}/.claude.json", json.dumps(server).encode())
    before = user.state()
    for folder in folders.values():
        user.environment["CLAUDE_CONFIG_DIR"] = str(folder)
        user.run("setup", "--yes")
    del user.environment["CLAUDE_CONFIG_DIR"]
    for folder in folders.values():
        assert "upwell-hook" in (folder / "settings.json").read_text()
        assert '"wrap"' in (folder / ".claude.json").read_text()
    user.run("setup", "--undo", "--yes")
    assert user.state() == before


def test_undo_gives_back_the_servers_of_every_settings_folder(user: User) -> None:
    for name in ("work", "own"):
        server = {"mcpServers": {name: {"command": f"{name}-mcp"}}}
        user.write(f".claude-{name}/.claude.json", json.dumps(server).encode())
    before = user.state()
    for name in ("work", "own"):
        user.environment["CLAUDE_CONFIG_DIR"] = str(user.folder / f".claude-{name}")
        moved_by_init(user.home, user.environment)
    user.run("setup", "--undo", "--only", "servers", "--yes")
    assert user.state() == before


def test_forgetting_names_the_accepted_memories_that_stay(user: User) -> None:
    user.run("setup", "--yes")
    (rule,) = [
        item
        for item in json.loads(user.run("inbox", "--json")[0])["proposals"]
        if item["text"] == RULE
    ]
    user.run("inbox", "accept", rule["id"])
    shown, _ = user.run("setup", "--undo", "--forget", "--yes")
    assert "kept: 1 memory that you accepted; `upwell forget ID` removes one" in shown
    assert f"{rule['id']}: {RULE}" in shown
    assert f"upwell's own folder {user.home} stays; delete it to remove everything" in shown
    user.run("forget", rule["id"])
    assert "No standing rules" in "".join(user.run("rules"))


def test_shortening_is_set_up_only_when_asked_for(user: User) -> None:
    before = user.state()
    assert "--shorten shortens" in user.run("setup", "--dry-run")[0]
    shown, _ = user.run("setup", "--shorten", "--yes")
    assert "--shorten shortens" not in shown
    config = tomllib.loads((user.home / "config.toml").read_text())
    assert config["hook"]["compress"] == ["claude", "codex"]
    user.run("setup", "--undo", "--forget", "--yes")
    assert user.state() == before


def test_undo_leaves_what_others_did_before_and_since(user: User) -> None:
    user.run("hook", "install", "codex", "--apply")
    user.run("remember", "The till closes at six")
    user.home.joinpath("config.toml").write_text("# mine\n[surface]\nmin_score = 0.4\n")
    before = user.state()
    user.run("setup", "--yes")
    config = user.home / "config.toml"
    config.write_text(config.read_text() + '\n[server.later]\ncommand = "later-mcp"\n')
    claude = user.folder / ".claude.json"
    claude.write_text(claude.read_text().replace('"numStartups": 7', '"numStartups": 8'))
    user.run("setup", "--undo", "--forget", "--yes")
    after = user.state()
    assert after[".codex/hooks.json"] == before[".codex/hooks.json"]
    assert after[".codex/config.toml"] == before[".codex/config.toml"]
    assert after[".claude/settings.json"] == before[".claude/settings.json"]
    changed = json.loads(after[".claude.json"][1])
    assert changed == {**json.loads(CLAUDE_JSON), "numStartups": 8}
    assert tomllib.loads(config.read_text()) == {
        "surface": {"min_score": 0.4},
        "server": {"later": {"command": "later-mcp"}},
    }
    assert config.read_text().startswith("# mine\n")
    assert "The till closes at six" in user.run("recall", "till closes")[0]


def test_a_hook_that_does_not_work_is_reported(user: User) -> None:
    """One settings file has a command whose program does not exist, the other has no command."""
    user.run("setup", "--yes")
    settings = user.folder / ".claude/settings.json"
    written = settings.read_text()
    settings.write_text(written.replace("upwell-hook claude", "gone/upwell-hook claude"))
    from upwell.hosts import HOSTS
    from upwell.setup.proof import prove

    proof = prove(HOSTS["claude"], settings.read_text(), "/", user.environment, lambda: 0)
    assert "wrote to stderr" in proof.fault
    silent = prove(HOSTS["codex"], "", "/", user.environment, lambda: 0)
    assert silent.fault == "the file has no command for this event"


def test_a_file_that_cannot_be_read_is_named_and_the_rest_goes_on(user: User) -> None:
    broken = user.folder / ".codex" / "hooks.json"
    broken.write_text("{not json")
    out, err = user.run("setup", "--yes", code=1)
    assert str(broken) in err
    assert broken.read_text() == "{not json"
    assert "tested: claude" in out
    user.run("setup", "--undo", "--yes")
    assert broken.read_text() == "{not json"
    assert (user.folder / ".claude/settings.json").read_bytes() == CLAUDE_SETTINGS


def test_a_file_that_became_a_folder_is_named_and_the_rest_is_undone(user: User) -> None:
    user.run("setup", "--yes")
    settings, hooks = user.folder / ".claude/settings.json", user.folder / ".codex/hooks.json"
    settings.unlink()
    settings.mkdir()
    _, err = user.run("setup", "--undo", "--yes", code=1)
    assert f"cannot read {settings}" in err
    assert "internal error" not in err
    assert "upwell" not in (hooks.read_text() if hooks.exists() else "")


def test_without_an_agent_there_is_nothing_to_do(user: User, tmp_path: Path) -> None:
    user.environment["HOME"] = str(tmp_path / "nobody")
    (tmp_path / "nobody").mkdir()
    assert "no known agent" in user.run("setup", "--yes")[0]
    assert "--undo" in user.run("setup", "--forget", code=2)[1]


def test_setup_says_that_it_learned_nothing_and_why(user: User) -> None:
    first = user.folder / ".claude/projects/-shop/s1.jsonl"
    record = json.loads(first.read_text().splitlines()[0])
    second = user.folder / ".codex/sessions/2026/01/05/rollout-2.jsonl"
    record["message"] = {"role": "user", "content": "Good morning"}
    first.write_text(json.dumps(record) + "\n")
    second.unlink()
    out, _ = user.run("setup", "--yes")
    assert "nothing learned: in these sessions no command worked after others had failed" in out
    assert "learns from each turn of Claude Code, Codex and Copilot CLI from now on" in out
    again, _ = user.run("setup", "--yes")
    assert "nothing new to learn: these sessions were read before" in again
    silent = user.run("context", "how do we bake bread in the oven?")[1]
    assert "upwell stayed silent: the memory is empty (no_candidates)" in silent
    first.unlink()
    none, _ = user.run("setup", "--yes")
    assert "nothing learned: no agent has recorded a session on this machine yet" in none
