"""`upwell recall --sessions` by the real command."""

from pathlib import Path

import pytest

from tests.conftest import Upwell
from tests.unit.app.test_past_sessions import LOCATOR, TOKEN, pump_session


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with one past session, in the project `harbour`."""
    project = tmp_path / "harbour"
    project.mkdir()
    (project / "pump.py").write_text("slow")
    pump_session(tmp_path, project)
    return {"HOME": str(tmp_path)}


def test_a_question_a_file_and_a_turn(upwell: Upwell, user: dict[str, str]) -> None:
    shown = upwell("recall", "--sessions", "why", "does", "the", "pump", "stall", env=user)
    assert shown.code == 0, shown.err
    assert f"claude · harbour · {LOCATOR}" in shown.out
    assert "concluded  A shell blocked the inlet" in shown.out
    assert "worked     make dock PUMP=1" in shown.out
    assert "changed    pump.py (reverted)" in shown.out
    assert TOKEN not in shown.out
    by_file = upwell("recall", "--sessions", "--file", "pump.py", env=user)
    assert by_file.out == shown.out
    page = upwell("recall", "--sessions", LOCATOR, env=user)
    assert "## Commands that worked\nmake dock PUMP=1" in page.out


def test_json_and_narrowing(upwell: Upwell, user: dict[str, str]) -> None:
    query = ("recall", "--sessions", "pump")
    (found,) = upwell(*query, "--json", env=user).json["sessions"]
    assert found["locator"] == LOCATOR
    assert found["commands"] == ["make dock PUMP=1"]
    assert found["files"] == [{"path": "pump.py", "state": "reverted", "commits": []}]
    for narrowed in (("--host", "codex"), ("--since", "1h"), ("--project", "/nowhere")):
        nothing = upwell(*query, *narrowed, env=user)
        assert (nothing.code, nothing.out) == (0, "")
        assert "No past session found." in nothing.err


@pytest.mark.parametrize(
    "args",
    [
        ("--sessions",),
        ("--sessions", "pump", "--file", "pump.py"),
        ("--sessions", "pump", "--trash"),
        ("--sessions", "pump", "--since", "soon"),
        ("--sessions", "session:nothing"),
        ("pump", "--host", "codex"),
    ],
)
def test_a_mistake_is_one_clear_line(
    upwell: Upwell, user: dict[str, str], args: tuple[str, ...]
) -> None:
    answer = upwell("recall", *args, env=user)
    assert answer.code == 2
    assert len(answer.err.strip().splitlines()) == 1
