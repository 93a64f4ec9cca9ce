"""What `upwell setup` says of the last month before it asks, by the real command."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.doors.test_setup import User


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    user = User(tmp_path)
    yield user
    user.stop()


def test_before_it_asks_it_says_what_would_have_been_said_in_the_last_month(user: User) -> None:
    """Five days after a session that found the missing option, another one meets the same error."""
    own = ("-c", "user.name=Ann", "-c", "user.email=ann@shop.example")
    for verb in (["init"], [*own, "commit", "--allow-empty", "--message", "First"]):
        subprocess.run(["git", "-C", user.project, *verb, "--quiet"], check=True)
    for number in (1, 2):
        day = datetime.now(UTC) - timedelta(days=10 - 5 * number)
        session = user.claude_session(f"recent-{number}", f"{day:%Y-%m-%dT%H:%M:%SZ}")
        user.write(f".claude/projects/-shop/recent-{number}.jsonl", session)
    out, _ = user.answer("n", "setup", code=1)
    (line,) = [line for line in out.splitlines() if "of the last month" in line]
    assert "In the 2 sessions of the last month" in line
    assert "would have said 2 memories (1 at a question, 1 where a command failed)" in line
    assert "`upwell replay --since 30d` shows them" in line
