"""The files that a repository tracks."""

import subprocess
from pathlib import Path

import pytest

from upwell.ground.project import tracks


def git(folder: Path, *args: str) -> None:
    subprocess.run(["git", *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    (folder / ".upwell").mkdir(parents=True)
    (folder / ".upwell" / "stm.json").write_text("[]")
    git(folder, "init", "-q")
    return folder


def test_a_tracked_file_came_with_the_clone(repository: Path) -> None:
    assert not tracks(str(repository), ".upwell/stm.json")
    git(repository, "add", ".upwell/stm.json")
    assert tracks(str(repository), ".upwell/stm.json")
    assert not tracks(str(repository), ".upwell/other.json")


@pytest.mark.parametrize("made", [["--index-version", "4"], ["--split-index"]])
def test_an_index_of_another_shape_says_the_same(repository: Path, made: list[str]) -> None:
    for number in range(200):
        (repository / f".upwell/stm{'x' * number}.txt").write_text("")
    git(repository, "add", ".")
    git(repository, "update-index", *made)
    assert tracks(str(repository), ".upwell/stm.json")
    assert tracks(str(repository), f".upwell/stm{'x' * 199}.txt")
    assert not tracks(str(repository), ".upwell/stm")


def test_a_worktree_has_its_index_elsewhere(repository: Path, tmp_path: Path) -> None:
    git(repository, "add", ".")
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    git(repository, *who, "commit", "-qm", "x")
    git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert tracks(str(tmp_path / "tree"), ".upwell/stm.json")


def test_without_a_repository_nothing_is_tracked(tmp_path: Path) -> None:
    assert not tracks(str(tmp_path), ".upwell/stm.json")
