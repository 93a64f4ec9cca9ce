import os
import threading
import time
from pathlib import Path

import pytest

from upwell.ground import files
from upwell.ground.errors import StoreUnwritable
from upwell.ground.files import exclusively, write_atomically, writing


def test_a_lock_of_another_process_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
    with (
        exclusively(tmp_path / "file"),
        pytest.raises(StoreUnwritable, match="locked by another process"),
        exclusively(tmp_path / "file"),
    ):
        pytest.fail("two at once")


def test_a_lock_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "file.lock")
    with pytest.raises(StoreUnwritable, match="cannot write"), exclusively(tmp_path / "file"):
        pytest.fail("without a lock")


def test_system_errors_become_our_errors(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(StoreUnwritable, match=r"cannot write .*nowhere"), writing(path):
        write_atomically(path, "text")


def test_many_processes_get_the_lock_one_after_the_other(tmp_path: Path) -> None:
    """After a quarter of a second, a waiting process tries less often, but still gets its turn."""
    path = tmp_path / "notes.json"
    held = threading.Event()

    def holder() -> None:
        with exclusively(path):
            held.set()
            time.sleep(0.6)

    thread = threading.Thread(target=holder)
    thread.start()
    held.wait()
    with pytest.raises(StoreUnwritable), exclusively(path, 0.1):
        pass
    with exclusively(path, 5.0):
        pass
    thread.join()
