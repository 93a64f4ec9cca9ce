"""What is learned in a linked worktree belongs to its repository."""

import os
import subprocess
from pathlib import Path

import pytest

from upwell.capture.git import proposals_from
from upwell.capture.inbox import Inbox, of_project
from upwell.capture.sessions import Findings
from upwell.episodes.triggers import Episode, EpisodeKind

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A linked worktree of the repository `main` beside it."""
    folder, main = tmp_path / "tree", tmp_path / "main"
    reason = "Retry twice only, because the bank locks accounts that ask too often"
    for args in (
        ["init", "-q", str(main)],
        ["-C", str(main), "commit", "-q", "--allow-empty", "-m", reason],
        ["-C", str(main), "worktree", "add", "-q", str(folder)],
    ):
        subprocess.run(["git", *AUTHOR, *args], check=True, capture_output=True)
    return folder


def test_a_finding_of_a_session_is_the_same_in_every_worktree(tree: Path) -> None:
    main = tree.parent / "main"
    proposals = []
    for folder in (tree, main):
        findings = Findings()
        file = f"{folder}/src/retry.py"
        episode = Episode(
            kind=EpisodeKind.RULE, text="Retry twice only", triggers=(), session="s",
            cwd=str(folder), paths=(file,),
        )  # fmt: skip
        findings.add(episode, str(folder), "session:s")
        proposals += findings.proposals
    assert [proposal.project for proposal in proposals] == [str(main)] * 2
    assert [proposal.paths for proposal in proposals] == [("src/retry.py",)] * 2
    assert proposals[0].id == proposals[1].id


def test_proposals_wait_in_every_worktree(tree: Path, tmp_path: Path) -> None:
    main = tree.parent / "main"
    box = Inbox(tmp_path / "inbox.json", lambda text: (text, ()))
    for folder in (tree, main):
        box.propose(proposals_from(folder, None, os.environ).proposals)
    (proposal,) = box.waiting()
    assert proposal.project == str(main)
    for folder in (tree, main):
        assert of_project(box.waiting(), str(folder), None) == [proposal]
    assert of_project(box.waiting(), str(tmp_path), None) == []
