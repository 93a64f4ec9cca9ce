"""Scopes of rules: which files and commands they match, and which patterns are refused."""

import time
from typing import Any

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.types.cue import Cue
from upwell.ground.types.memory import Memory
from upwell.surface.rules import RuleScope, checked_scope, scope_of


def tool(name: str, cwd: str = "/repo", **args: Any) -> Cue:
    return Cue(door="tool", tool=name, args=args, session="s", cwd=cwd)


@pytest.mark.parametrize(
    ("pattern", "file", "matches"),
    [
        ("src/api/**", "/repo/src/api/v1/orders.py", True),
        ("src/api/**", "src/api/orders.py", True),
        ("src/api/**", "/repo/src/api_client.py", False),
        ("src/api/**", "/elsewhere/src/api/orders.py", False),
        ("src/*/orders.py", "/repo/src/api/orders.py", True),
        ("src/*/orders.py", "/repo/src/api/v1/orders.py", False),
        ("**/orders.py", "/repo/orders.py", True),
        ("*.sql", "/repo/db/migrations/7.sql", True),
        ("*.sql", "/repo/db/sql.py", False),
        ("a+b(c)/?.py", "/repo/a+b(c)/x.py", True),
    ],
)
def test_globs_match_files_of_the_project(pattern: str, file: str, matches: bool) -> None:
    assert RuleScope(paths=(pattern,)).matches(tool("Read", file_path=file)) is matches


def test_a_path_is_relative_to_the_folder_of_the_agent() -> None:
    cue = tool("Read", cwd="/repo", file_path="./src/../src/api/orders.py")
    assert RuleScope(paths=("src/api/*.py",)).matches(cue)


def test_a_prompt_that_names_the_file_matches() -> None:
    cue = Cue(door="prompt", text="Why is src/api/orders.py so slow?", session="s", cwd="/repo")
    assert RuleScope(paths=("src/api/**",)).matches(cue)
    assert not RuleScope(tools=("Read",)).matches(cue)


@pytest.mark.parametrize(
    ("pattern", "command", "matches"),
    [
        ("Bash", "ls", True),
        ("Bash(git push*)", "git push origin main", True),
        ("Bash(git push*)", "cd web && git  push", True),
        ("Bash(git push*)", "git pull", False),
        ("Bash(git push*)", "echo 'not git push'", False),
        ("Read", "ls", False),
    ],
)
def test_tools_match_by_name_and_command(pattern: str, command: str, matches: bool) -> None:
    assert RuleScope(tools=(pattern,)).matches(tool("Bash", command=command)) is matches


def test_a_tool_of_a_server_matches_by_a_pattern() -> None:
    assert RuleScope(tools=("github__*",)).matches(tool("github__create_issue"))


def test_both_kinds_must_match() -> None:
    scope = RuleScope(paths=("*.sql",), tools=("Bash(psql*)",))
    assert scope.matches(tool("Bash", command="psql -f db/up.sql"))
    assert not scope.matches(tool("Bash", command="psql -f db/up.txt"))
    assert not scope.matches(tool("Read", file_path="/repo/db/up.sql"))


def test_no_scope_matches_nothing_and_survives_the_store() -> None:
    assert not RuleScope().matches(tool("Bash", command="ls"))
    scope = checked_scope(["./src/**"], ["Bash(git push*)"])
    assert scope_of(Memory(text="x", triggers=scope.triggers())) == scope
    assert scope.paths == ("src/**",)


@pytest.mark.parametrize(
    ("paths", "tools"),
    [
        (["/etc/*"], []),
        (["~/x"], []),
        (["../x"], []),
        ([" "], []),
        (["x" * 201], []),
        ([], ["a b"]),
    ],
)
def test_patterns_that_cannot_match_are_refused(paths: list[str], tools: list[str]) -> None:
    with pytest.raises(UsageError):
        checked_scope(paths, tools)


def test_a_hostile_pattern_takes_linear_time() -> None:
    cue = tool("Read", file_path="/repo/" + "a" * 3_000)
    assert not RuleScope(paths=("*a" * 90 + "b",)).matches(cue)


@pytest.mark.parametrize(
    "command",
    [
        "git push --force",
        "sh -c 'git push --force'",
        'cd web && bash -lc "git push --force"',
        "/bin/zsh -c 'sh -c \"git push --force\"'",
        ["bash", "-lc", "cd web; git push --force"],
        "echo $(git push --force)",
        "sha=`git push --force`",
        "eval 'git push --force'",
        "/usr/bin/git push --force",
        "sudo -u ada git push --force",
        "nice -n 5 git push --force",
        "echo x | xargs git push --force",
        "FOO='a b' git  'push' \\\n --force",
    ],
)
def test_a_command_inside_another_one_is_found(command: object) -> None:
    scope = RuleScope(tools=("Bash(git push*--force*)",))
    assert scope.matches(tool("Bash", command=command))


@pytest.mark.parametrize(
    "command",
    ["echo 'git push --force'", "git commit -m 'no git push --force'", "# git push --force"],
)
def test_a_command_in_a_text_is_not_run(command: str) -> None:
    scope = RuleScope(tools=("Bash(git push*--force*)",))
    assert not scope.matches(tool("Bash", command=command))


@pytest.mark.parametrize("unit", ["$(", "`", "sh -c '", "sudo ", "eval ", "$(a) ", "(", "\\"])
def test_a_hostile_command_takes_linear_time(unit: str) -> None:
    scope = RuleScope(tools=("Bash(git push*--force*)",))
    began = time.process_time()
    assert not scope.matches(tool("Bash", command=unit * 400_000))
    assert time.process_time() - began < 1
