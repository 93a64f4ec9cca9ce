"""The folder of a home's daemon, also where another user has taken its name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from upwell.hook.control import running
from upwell.hook.daemon import take_lock
from upwell.hook.place import DaemonPlace, folder_of_user, is_private


def test_the_usual_folder_is_used_where_it_is_free_or_private(tmp_path: Path) -> None:
    usual = folder_of_user(str(tmp_path))
    for _ in range(2):
        place = DaemonPlace(str(tmp_path / "home"), str(tmp_path))
        assert place.folder == usual
        os.close(take_lock(place))


TAKEN: dict[str, Callable[[Path], object]] = {
    "open to all": lambda path: (path.mkdir(), path.chmod(0o777)),
    "a file": lambda path: path.write_text("x"),
    "a link": lambda path: path.symlink_to(path.parent / "home"),
    "a link to nothing": lambda path: path.symlink_to(path.parent / "gone"),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("kind", TAKEN)
def test_a_taken_name_stops_no_daemon(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("UPWELL_HOME", str(home))
    TAKEN[kind](Path(folder_of_user(str(tmp_path))))
    place = DaemonPlace(str(home), str(tmp_path))
    assert place.folder == f"{home}/run"
    os.close(take_lock(place))
    assert is_private(place.folder)
    assert running(str(tmp_path)) == []


def test_a_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(folder_of_user(str(tmp_path)), 0o700)
    other = os.getuid() + 1
    os.rename(folder_of_user(str(tmp_path)), tmp_path / f"upwell-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert DaemonPlace(str(tmp_path / "home"), str(tmp_path)).folder == f"{tmp_path}/home/run"
