"""Commands that are worth repeating."""

import pytest

from upwell.sessions.commands import notable, worth_repeating
from upwell.sessions.turns import Run


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
        ("curl -H 'Authorization: Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345' x.io", ""),
    ],
)
def test_only_what_an_agent_would_not_know(command: str, shown: str) -> None:
    assert worth_repeating(command) == shown


def test_each_command_once_as_it_ran_last_the_latest_first() -> None:
    runs = [
        Run("make pump A=1", worked=False),
        Run("make dock B=2", worked=True),
        Run("make pump A=1", worked=True),
    ]
    assert notable(runs) == [Run("make pump A=1", True), Run("make dock B=2", True)]
