"""The pause file."""

from pathlib import Path

import pytest

from upwell.ground.errors import UsageError
from upwell.ground.pause import Pause


def test_one_session_is_paused_and_resumed(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "pause")
    pause.begin("s 1")
    assert pause.holds("s 1")
    assert not pause.holds("s")
    pause.end("s 1")
    assert not pause.anybody()


@pytest.mark.parametrize("name", ["", "*", "a\n*", "a\r", "\udcff", "\0", "\u202e"])
def test_a_name_that_no_session_has_pauses_and_resumes_nobody(tmp_path: Path, name: str) -> None:
    """An empty variable in `--session "$NAME"` would otherwise pause everybody."""
    pause = Pause(tmp_path / "pause")
    with pytest.raises(UsageError, match="is not a session"):
        pause.begin(name)
    assert not pause.anybody()
    pause.begin("other")
    with pytest.raises(UsageError, match="is not a session"):
        pause.end(name)
    assert pause.holds("other")


def test_it_says_what_is_paused(tmp_path: Path) -> None:
    pause = Pause(tmp_path / "paused")
    assert (pause.described(), pause.ping().detail) == ("", "not paused")
    pause.begin("a")
    assert pause.described() == "1 session is paused"
    pause.begin("b")
    assert pause.ping().detail == "2 sessions are paused: `upwell on` resumes"
    pause.begin(None)
    assert pause.described() == "everything is paused"
