"""The answer of a past session: commands that worked, and the state of its files."""

import os
import subprocess
from pathlib import Path

import pytest

from upwell.sessions.answer import file_states
from upwell.sessions.turns import FileChange, Turn

ENVIRONMENT = dict(os.environ)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "harbour"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


def git(folder: Path, *args: str) -> None:
    name = ["-c", "user.name=Ana", "-c", "user.email=ana@example.org"]
    subprocess.run(["git", *name, *args], cwd=folder, check=True, capture_output=True)


def state(project: Path, change: FileChange, ended: float = 4e9) -> tuple[str, int]:
    turn = Turn(session="s", host="claude", number=0, question="q", cwd=str(project), ended=ended)
    turn.changes.append(change)
    (told,) = file_states(turn, ENVIRONMENT)
    return told.state, len(told.commits)


def test_a_change_stands_as_long_as_its_text_is_in_the_file(project: Path) -> None:
    path = project / "pump.py"
    change = FileChange(str(path), "slow = 1", "fast = 1")
    path.write_text("x = 0\nfast = 1\n")
    assert state(project, change) == ("stands", 0)
    path.write_text("x = 0\nslow = 1\n")
    assert state(project, change) == ("reverted", 0)
    path.write_text("x = 0\n")
    assert state(project, change) == ("changed since", 0)
    path.unlink()
    assert state(project, change) == ("gone", 0)


def test_some_lines_of_both_texts_are_not_a_revert(project: Path) -> None:
    path = project / "pump.py"
    inserted = FileChange(str(path), "import os\n", "import os\nimport pumps\nimport valves\n")
    path.write_text("import os\nimport pumps\n")
    assert state(project, inserted) == ("changed since", 0)
    path.write_text("import os\n")
    assert state(project, inserted) == ("changed since", 0)
    path.write_text("import valves\nimport os\nx = 1\nimport pumps\n")
    assert state(project, inserted) == ("stands", 0)


def test_only_the_requested_file_is_reported(project: Path) -> None:
    turn = Turn(session="s", host="claude", number=0, question="q", cwd=str(project))
    turn.changes += [FileChange(str(project / name)) for name in ("pump.py", "src/pump.py", "a.py")]
    told = file_states(turn, ENVIRONMENT, "src/pump.py")
    assert [each.path for each in told] == ["src/pump.py"]
    assert [each.path for each in file_states(turn, ENVIRONMENT, "pump.py")] == [
        "pump.py",
        "src/pump.py",
    ]


def test_a_removal_stands_until_the_text_comes_back(project: Path) -> None:
    path = project / "pump.py"
    path.write_text("x = 0\n")
    assert state(project, FileChange(str(path), "old = 1", "")) == ("stands", 0)
    path.write_text("old = 1\n")
    assert state(project, FileChange(str(path), "old = 1", "")) == ("reverted", 0)


def test_later_commits_are_named(project: Path) -> None:
    path = project / "pump.py"
    path.write_text("slow = 1\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "Go slowly again")
    change = FileChange("pump.py", "slow = 1", "fast = 1")
    turn = Turn(session="s", host="claude", number=0, question="q", cwd=str(project), ended=1.0)
    turn.changes.append(change)
    (told,) = file_states(turn, ENVIRONMENT)
    assert told.state == "reverted"
    assert told.text.startswith("pump.py (reverted, 1 commit, last ")
    assert told.text.endswith(" Go slowly again)")
    assert state(project, change) == ("reverted", 0)


def test_without_the_text_of_the_change_only_commits_tell(project: Path) -> None:
    path = project / "pump.py"
    path.write_text("slow = 1\n")
    assert state(project, FileChange(str(path)), ended=1.0) == ("", 0)
    git(project, "add", ".")
    git(project, "commit", "-qm", "Pump")
    assert state(project, FileChange(str(path)), ended=1.0) == ("changed since", 1)
