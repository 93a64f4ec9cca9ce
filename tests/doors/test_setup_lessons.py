"""`upwell setup --lessons`: offered with its cost, written by the agent's own program, undone."""

import json
import os
import stat
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doors.test_setup import QUESTION, User

LESSON = "Bread is baked with `bake bread --lid`, or it fails."
ASKED = "Also let claude write down what your sessions taught"
PROGRAM = f"""#!{sys.executable}
import json, pathlib, sys
question = sys.stdin.read()
with open(pathlib.Path(__file__).with_name("asked"), "a") as log:
    log.write("x")
lesson = {{"kind": "command", "text": {LESSON!r}, "evidence": [1, 2], "triggers": ["--lid"]}}
print(json.dumps({{"result": json.dumps(lesson), "usage": {{"input_tokens": 900}}}}))
"""


class Baker(User):
    """A user with `claude` on the PATH, and sessions that are long enough to teach something."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write("bin/claude", PROGRAM.encode(), mode=0o700)
        known = [path for path in os.environ["PATH"].split(":") if not _has_agent(path)]
        self.environment["PATH"] = ":".join([str(self.folder / "bin"), *known])
        first = (self.folder / ".claude/projects/-shop/s1.jsonl").read_text()
        for number in range(3):
            at = f"2026-01-0{number + 6}T10:00:00Z"
            text = first.replace("s1", f"b{number}").replace("2026-01-05T10:00:00Z", at)
            text = text.replace("done", "done\\n" + "crumb " * (number + 1))
            content = (text + "\n".join(text.splitlines()[1:]) + "\n").encode()
            self.write(f".claude/projects/-shop/b{number}.jsonl", content)

    @property
    def asked(self) -> int:
        """How often the model was asked."""
        log = self.folder / "bin/asked"
        return log.stat().st_size if log.exists() else 0

    @property
    def config(self) -> dict[str, dict[str, object]]:
        return tomllib.loads((self.home / "config.toml").read_text())

    def lessons(self) -> list[str]:
        rows = json.loads(self.run("lessons", "--json")[0])["lessons"]
        return [row["text"] for row in rows]


def _has_agent(folder: str) -> bool:
    return any(os.path.exists(f"{folder}/{name}") for name in ("claude", "codex"))


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Baker]:
    user = Baker(tmp_path)
    yield user
    user.stop()


def test_lessons_are_offered_with_their_cost_and_cost_nothing_unasked(user: Baker) -> None:
    shown, _ = user.run("setup", "--dry-run")
    (line,) = [line for line in shown.splitlines() if line.startswith("  lessons ")]
    assert "none; --lessons has claude write down what sessions taught: 3 past sessions" in line
    assert "(about " in line
    assert "300,000 tokens a day" in line
    done, _ = user.run("setup", "--yes")
    assert "`upwell replay` shows" in done, "no session ended in the last month"
    assert "lessons" not in user.config
    assert user.asked == 0


def test_the_question_about_lessons_is_its_own_and_answered_no_by_default(user: Baker) -> None:
    session = user.folder / ".claude/projects/-shop/b0.jsonl"
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 600))
    session.write_text(session.read_text().replace("2026-01-06T10:00:00Z", now))
    out, err = user.answer("y\n", "setup", code=0)
    assert "`upwell replay --since 30d` shows" in out
    assert QUESTION in out + err
    assert ASKED in out + err
    assert user.config["hook"]["capture"] is True
    assert "lessons" not in user.config
    assert user.asked == 0


def test_yes_to_the_question_writes_lessons_of_the_past(user: Baker) -> None:
    user.answer("y\ny", "setup", code=0)
    assert user.config["lessons"] == {"model": "agent"}
    assert user.asked == 3
    assert user.lessons() == [LESSON]


def test_lessons_are_written_undone_and_learned_again(user: Baker) -> None:
    before = user.state()
    out, err = user.run("setup", "--yes", "--lessons")
    assert "claude reads 3 sessions" in err
    assert "3 sessions read by a model" in out
    assert user.lessons() == [LESSON]
    asked = user.asked
    again, _ = user.run("setup", "--yes", "--lessons")
    assert "lessons  claude writes down what sessions taught: those to come" in again
    assert user.asked == asked, "each session is read once"
    shown, _ = user.run("setup", "--undo", "--dry-run")
    assert LESSON in shown
    user.run("setup", "--undo", "--yes")
    assert not (user.home / "config.toml").exists()
    assert user.lessons() == [LESSON], "what was learned stays"
    user.run("setup", "--undo", "--forget", "--yes")
    assert user.lessons() == []
    (user.folder / "bin/asked").unlink()
    assert user.state() == before
    user.run("setup", "--yes", "--lessons")
    assert user.lessons() == [LESSON]


def test_a_lesson_that_the_user_edited_is_not_forgotten(user: Baker) -> None:
    user.run("setup", "--yes", "--lessons")
    (row,) = json.loads(user.run("lessons", "--json")[0])["lessons"]
    user.run("lessons", "edit", row["id"], "Bread needs a lid.")
    shown, _ = user.run("setup", "--undo", "--forget", "--yes")
    assert user.lessons() == ["Bread needs a lid."]
    assert "kept: 1 lesson that you edited or pinned" in shown


@pytest.mark.parametrize("is_undone_before", [False, True])
def test_lessons_written_after_setup_are_forgotten_with_its_own(
    user: Baker, is_undone_before: bool
) -> None:
    user.run("setup", "--yes", "--lessons")
    program = user.folder / "bin/claude"
    program.write_text(PROGRAM.replace("--lid", "--heat"))
    first = (user.folder / ".claude/projects/-shop/b0.jsonl").read_text()
    text = first.replace("b0", "later").replace("2026-01-06", "2026-02-06")
    text = text.replace("--lid", "--heat").replace("crumb", "crust")
    user.write(".claude/projects/-shop/later.jsonl", text.encode())
    user.run("learn", "sessions", "--lessons")
    assert len(user.lessons()) == 2
    if is_undone_before:
        user.run("setup", "--undo", "--yes")
        assert len(user.lessons()) == 2
    shown, _ = user.run("setup", "--undo", "--forget", "--yes")
    assert user.lessons() == []
    assert shown.count("learned: memory") == 2
    assert not (user.home / "setup.json").exists()


def test_the_budget_of_the_day_ends_it_and_the_command_to_go_on_is_named(user: Baker) -> None:
    user.home.mkdir(parents=True, mode=0o700)
    (user.home / "config.toml").write_text("[lessons]\ndaily_tokens = 4000\n")
    out, _ = user.run("setup", "--yes", "--lessons")
    assert user.asked == 2
    assert "1 past session left: `upwell learn sessions --lessons` goes on with them" in out
    assert "today's tokens are spent" in out


def test_without_a_model_one_line_says_so(user: Baker) -> None:
    program = user.folder / "bin/claude"
    program.chmod(stat.S_IMODE(program.stat().st_mode) & ~0o111)
    assert "lessons  none: no agent's program" in user.run("setup", "--yes")[0]
    _, err = user.run("setup", "--yes", "--lessons", code=2)
    assert "no agent's program" in err
    assert len(err.splitlines()) == 1
