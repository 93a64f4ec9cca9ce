"""Clones in which objects are missing are read as far as they go."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.replay.repository import ENVIRONMENT, at, commit, git, repository

from upwell.capture.git import commits_since, proposals_from, proposals_of
from upwell.ground.errors import UsageError
from upwell.replay.memories import Checkout, Repository

WHY = "Change part {}\n\nThe tide gauge failed, so that we must never retry."


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "origin")
    for day in range(1, 6):
        files = {f"src/part{day}.py": f"part = {day}\n", "src/all.py": f"{day}\n"}
        commit(folder, at(day), WHY.format(day), files)
    git(folder, "config", "uploadpack.allowFilter", "true")
    return folder


def cloned(origin: Path, *options: str) -> Path:
    folder = origin.with_name("clone")
    command = ["git", "clone", "-q", *options, f"file://{origin}", str(folder)]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    return folder


def without(origin: Path, name: str) -> Path:
    """The repository without one object, under a name that `git rev-parse` knows."""
    sha = git(origin, "rev-parse", name).strip()
    (origin / ".git/objects" / sha[:2] / sha[2:]).unlink()
    return origin


CLONES: dict[str, tuple[Callable[[Path], Path], int, int]] = {
    "whole": (lambda origin: cloned(origin), 5, 0),
    "shallow": (lambda origin: cloned(origin, "--depth=2"), 2, 0),
    "without blobs": (lambda origin: cloned(origin, "--filter=blob:none"), 5, 0),
    "without trees": (lambda origin: cloned(origin, "--filter=tree:0"), 5, 5),
    "a tree is gone": (lambda origin: without(origin, "HEAD~2^{tree}"), 5, 2),
    "a blob is gone": (lambda origin: without(origin, "HEAD~2:src/all.py"), 5, 0),
    "a commit is gone": (lambda origin: without(origin, "HEAD~3"), 2, 0),
}


@pytest.mark.parametrize("clone", CLONES)
def test_the_reasons_of_commits_are_read_as_far_as_it_goes(origin: Path, clone: str) -> None:
    make, read, bare = CLONES[clone]
    folder = make(origin)
    reading = proposals_from(folder, None, ENVIRONMENT)
    assert reading.read == read
    assert len(reading.proposals) == read
    assert sum(not proposal.paths for proposal in reading.proposals) == bare
    is_whole = read == 5 and not bare
    assert (reading.gap == "") is is_whole
    assert len(reading.gap.splitlines()) <= 1
    assert f"read {read} commits" in reading.gap or is_whole or clone == "shallow"
    proposals, is_complete = proposals_of(str(folder), 100, ENVIRONMENT)
    assert (len(proposals), is_complete) == (read, is_whole)


def test_a_repository_of_which_nothing_can_be_read_is_refused(origin: Path) -> None:
    without(origin, "HEAD")
    with pytest.raises(UsageError, match="git cannot read"):
        proposals_from(origin, None, ENVIRONMENT)


def test_a_renamed_file_without_content_is_listed_under_both_names(origin: Path) -> None:
    git(origin, "mv", "src/part1.py", "src/first.py")
    (origin / "src/first.py").write_text("part = 1\nfirst = True\n")
    commit(origin, at(6), WHY.format(6), {})
    folder = cloned(origin, "--filter=blob:none", "--no-checkout")
    reading = proposals_from(folder, None, ENVIRONMENT)
    assert reading.read == 6
    assert {"src/first.py", "src/part1.py"} <= set(reading.proposals[-1].paths)


def test_later_commits_are_found_up_to_a_hole(origin: Path) -> None:
    without(origin, "HEAD~3")
    found = commits_since(str(origin), ["src/all.py"], at(4) - 1, ENVIRONMENT)
    assert [subject for _, subject, _ in found] == ["Change part 5", "Change part 4"][: len(found)]


@pytest.mark.parametrize("clone", CLONES)
def test_a_replay_reads_the_files_as_far_as_it_goes(
    origin: Path, tmp_path: Path, clone: str
) -> None:
    opened = Repository(CLONES[clone][0](origin), ENVIRONMENT)
    checkout = Checkout(opened, tmp_path / "scratch")
    for day in range(1, 6):
        checkout.move(at(day) + 1)
    assert opened.is_incomplete is (clone != "whole")
    assert "src/part5.py" in checkout.files
    assert (tmp_path / "scratch/src/all.py").exists()


def test_a_damaged_object_costs_one_file(origin: Path, tmp_path: Path) -> None:
    sha = git(origin, "rev-parse", "HEAD:src/part3.py").strip()
    damaged = origin / ".git/objects" / sha[:2] / sha[2:]
    damaged.chmod(0o600)
    damaged.write_bytes(b"nonsense")
    opened = Repository(origin, ENVIRONMENT)
    checkout = Checkout(opened, tmp_path / "scratch")
    assert checkout.move(at(6))
    assert opened.is_incomplete
    assert checkout.files == {
        f"src/{name}.py" for name in ("all", "part1", "part2", "part4", "part5")
    }
