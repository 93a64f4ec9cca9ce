"""The files that a repository tracks."""

import os
import struct
import subprocess
import time
from pathlib import Path

import pytest

from upwell.ground import project
from upwell.ground.project import in_project, link_into, project_named, project_of, tracks


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
    assert tracks(str(repository), ".upwell/")
    assert not tracks(str(repository), ".upw/")


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


def _hostile(kind: str) -> bytes:
    entry = b"\0" * 60 + struct.pack(">H", 60)
    if kind == "growing paths":
        return (
            b"DIRC" + struct.pack(">II", 4, 200_000) + (entry + b"\0" + b"a" * 60 + b"\0") * 200_000
        )
    if kind == "many entries":
        return b"DIRC" + struct.pack(">II", 4, 2**31)
    if kind == "ends inside an entry":
        return b"DIRC" + struct.pack(">II", 4, 5) + entry
    return b"not an index"


@pytest.mark.parametrize(
    "kind", ["growing paths", "many entries", "ends inside an entry", "another file"]
)
def test_an_index_that_git_would_not_write_means_a_clone(tmp_path: Path, kind: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(_hostile(kind))
    began = time.process_time()
    assert tracks(str(tmp_path), ".upwell/stm.json")
    assert time.process_time() - began < 1


def test_a_pipe_in_the_place_of_the_index_means_a_clone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / ".git" / "index")
    assert tracks(str(tmp_path), ".upwell/stm.json")


def test_a_path_that_no_system_has_costs_no_time() -> None:
    """A hook or a transcript may name any folder."""
    began = time.process_time()
    for number in range(20):
        folder = f"/{number}" + "/x" * 5_000
        assert project_of(folder) == folder
    assert project_of("/" + "y/" * 1_000) == "/" + "y/" * 999 + "y"
    assert time.process_time() - began < 2


@pytest.fixture
def linked(repository: Path, tmp_path: Path) -> Path:
    (repository / "src").mkdir()
    (tmp_path / "link").symlink_to("repo")
    (tmp_path / "sub").symlink_to("repo/src")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("folder", ["repo", "link", "sub", "link/src", "link/new", "repo/../link/"])
def test_a_folder_has_one_project_however_it_is_reached(linked: Path, folder: str) -> None:
    assert project_of(f"{linked}/{folder}") == str(linked / "repo")


def test_folders_outside_of_a_repository_and_odd_ones(linked: Path) -> None:
    (linked / "plain").mkdir()
    (linked / "other").symlink_to("plain")
    assert project_of(str(linked / "other")) == str(linked / "plain")
    assert project_of(str(linked / "loop")) == str(linked / "loop")
    assert project_of("/p\0q") == "/p\0q"
    assert project_of("/p\udfff") == "/p\udfff"
    assert project_named(linked / "link") == str(linked / "repo")
    assert project_named(linked / "other" / "gone") == str(linked / "plain" / "gone")


def test_a_link_that_changes_is_followed(linked: Path) -> None:
    assert project_of(str(linked / "link")) == str(linked / "repo")
    (linked / "link").unlink()
    (linked / "elsewhere").mkdir()
    (linked / "link").symlink_to("elsewhere")
    assert project_of(str(linked / "link")) == str(linked / "elsewhere")


def test_a_path_through_a_link_is_named_through_the_project(linked: Path) -> None:
    root = str(linked / "repo")
    assert in_project(f"{linked}/link/src/a.py", root) == f"{root}/src/a.py"
    assert in_project(f"{linked}/sub/../link/a*.py", root) == f"{root}/a*.py"
    assert in_project(f"{linked}/sub/a.py", root) == f"{root}/src/a.py"
    assert in_project(f"{root}/src/a.py", root) == f"{root}/src/a.py"
    assert in_project("src/a.py", root) == "src/a.py"
    assert in_project("/usr/bin/env", root) == "/usr/bin/env"
    assert link_into(root, f"{linked}/loop/a.py") is None
    assert link_into(root, "/" + "a/" * 5_000) is None


def test_a_long_chain_of_links_is_not_followed(tmp_path: Path) -> None:
    for number in range(1_500):
        (tmp_path / f"l{number}").symlink_to(f"l{number + 1}")
    (tmp_path / "repo").mkdir()
    for place in (tmp_path / "l0", tmp_path / "l0" / "src"):
        assert project_of(str(place)) is not None
        assert link_into(str(tmp_path / "repo"), str(place)) is None


@pytest.fixture
def folding(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a repository `repo` on a disk that takes names in any case."""

    def on_disk(path: str) -> str:
        every = (str(each) for each in repository.parent.rglob("*"))
        return next((each for each in every if each.casefold() == path.casefold()), path)

    exists, is_same = os.path.lexists, os.path.samefile
    monkeypatch.setattr(project, "FOLDS_CASE", True)
    monkeypatch.setattr(os.path, "lexists", lambda path: exists(on_disk(path)))
    monkeypatch.setattr(os.path, "samefile", lambda *paths: is_same(*map(on_disk, paths)))
    return repository.parent


def test_a_folder_has_one_project_in_whatever_case_it_is_typed(folding: Path) -> None:
    root = str(folding / "repo")
    for folder in ("repo", "REPO", "Repo/.GIT", "rEPO/not/yet"):
        assert project_of(f"{folding}/{folder}") == root
    assert in_project(f"{folding}/REPO/src/A.py", root) == f"{root}/src/A.py"
    assert project_of(f"{folding}/Repo2") == f"{folding}/Repo2"


def test_folders_that_differ_in_case_are_two_on_a_disk_that_tells_them_apart(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "FOLDS_CASE", True)
    missing = str(repository.parent / "REPO")
    assert project_of(missing) == missing
    (repository.parent / "Repo").mkdir()
    assert project_of(str(repository.parent / "Repo")) == str(repository.parent / "Repo")
