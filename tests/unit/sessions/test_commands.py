"""Commands that are worth repeating."""

import pytest

from upwell.sessions.turns import Run, carried, notable, worth_repeating


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("cd /code && make harbour PUMP=1 2>&1 | tail -5", "make harbour PUMP=1"),
        ("npx vitest run src/pump.test.ts", "npx vitest run src/pump.test.ts"),
        ("ls -la", ""),
        ("git status --short", ""),
        ("git bisect run make", "git bisect run make"),
        ("python -c 'print(1)'", ""),
        ("make", ""),
        ("make harbour || true", ""),
        ("make harbour ; echo exit=$?", ""),
        ("make harbour\necho done", ""),
        ("make harbour &", ""),
        ("cd /code; make harbour;", "make harbour"),
        ("curl -H 'Authorization: Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345' x.io", ""),
    ],
)
def test_only_commands_that_an_agent_would_not_know(command: str, shown: str) -> None:
    assert worth_repeating(command) == shown


def test_each_command_once_as_it_ran_last_the_latest_first() -> None:
    runs = [
        Run("make pump A=1", worked=False),
        Run("make dock B=2", worked=True),
        Run("make pump A=1", worked=True),
    ]
    assert notable(runs) == [Run("make pump A=1", True), Run("make dock B=2", True)]


def worked(*commands: str) -> list[Run]:
    return [Run(command, worked=True) for command in commands]


def test_after_a_compaction_the_commands_that_were_needed_come_back() -> None:
    runs = [
        *worked("npx vitest run src/pump.test.ts", "make dock PUMP=1", "ls -la"),
        Run("make dock", worked=False),
        Run("cargo xtask check", worked=False),
        *worked("cargo xtask check --all", "make dock PUMP=1", "git bisect run make"),
    ]
    assert carried(runs) == ["make dock PUMP=1", "cargo xtask check --all"]


def test_of_one_purpose_only_the_usual_command_comes_back() -> None:
    runs = worked("go test ./a -run One", *["go test ./..."] * 3, "go test ./b -run Two")
    assert carried(runs) == ["go test ./..."]


def test_commands_about_one_object_do_not_come_back() -> None:
    again = "gh run view 22265444954"
    assert carried(worked(again, again, "make -C /tmp/x all", "make -C /tmp/x all")) == []
