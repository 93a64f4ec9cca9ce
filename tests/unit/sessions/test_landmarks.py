"""Commits, branches, tickets and pull requests in calls."""

import pytest

from upwell.sessions.turns import branch_in, issues_in, numbers_in, pulls_in


@pytest.mark.parametrize(
    ("command", "branch"),
    [
        ("cd /x && git checkout -b fix/pump", "fix/pump"),
        ("git switch -c fix/pump main", "fix/pump"),
        ("git -C /repo worktree add -b fix/pump ../w", "fix/pump"),
        ("git -C /repo status", ""),
        ("git commit -C HEAD", ""),
        ("echo -b x", ""),
    ],
)
def test_the_branch_that_a_command_creates(command: str, branch: str) -> None:
    assert branch_in(command) == branch


def test_tickets_and_pull_requests_are_named_by_number_or_address() -> None:
    text = "close https://forge.example/a/b/issues/1263, see PR 12 and /pull/7"
    assert issues_in(text) == ["1263"]
    assert pulls_in(text) == ["12", "7"]
    assert list(numbers_in("gh pr view 12 --json title; gh issue close 9")) == [
        ("pull", "12"),
        ("ticket", "9"),
    ]
