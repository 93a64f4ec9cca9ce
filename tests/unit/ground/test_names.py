"""Which tools a pattern such as `server__tool` names."""

import pytest

from upwell.ground.names import names_tool


@pytest.mark.parametrize(
    ("pattern", "tool", "is_named"),
    [
        ("fs__*", "fs__read", True),
        ("fs__*", "fs_extra__read", False),
        ("fs__*", "fs_read", False),
        ("claude.ai__issues.get", "claude_ai__issues_get", True),
        ("Bash", "Bash", True),
        ("*", "Bash", True),
    ],
)
def test_names_that_separate_the_server(pattern: str, tool: str, is_named: bool) -> None:
    assert names_tool(pattern, tool) is is_named


@pytest.mark.parametrize(
    ("pattern", "joined", "is_named"),
    [
        ("github__delete_*", "github_delete_repo", True),
        ("my_github__delete_*", "my_github_delete_repo", True),
        ("my-github__delete_*", "my-github-delete_repo", True),
        ("my github__delete_repo", "my_github_delete_repo", True),
        ("GitHub__delete_repo", "github_delete_repo", True),
        ("github__delete_*", "gitlab_delete_repo", False),
        ("github__*", "hub_delete_repo", False),
        ("*__delete_*", "my_github_delete_repo", True),
        ("github_delete_*", "github_delete_repo", False),
        ("*delete*", "github_delete_repo", True),
        ("Bash", "bash_x", False),
    ],
)
def test_names_that_join_the_server_to_the_tool(pattern: str, joined: str, is_named: bool) -> None:
    guess = joined.replace("-", "_").replace("_", "__", 1)
    assert names_tool(pattern, guess, joined) is is_named


@pytest.mark.parametrize(
    ("pattern", "is_named"),
    [("github__delete_*", True), ("github__*", False), ("github__read", False), ("*", True)],
)
def test_names_without_the_server(pattern: str, is_named: bool) -> None:
    assert names_tool(pattern, "delete_repo", "delete_repo") is is_named
