"""The folder of a home's daemon, also where another user has taken its name."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from upwell.ground.background import Receipt
from upwell.ground.errors import StoreUnwritable
from upwell.hook.control import daemon_at, end, running
from upwell.hook.daemon import Daemon, HookRequest, take_lock
from upwell.hook.place import MAX_FOLDER_BYTES, DaemonPlace, folder_of_user, is_private

LARGEST_PID = 4_194_304
MACOS_LIMIT = 104


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is as short as that of an ordinary user's home."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


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
@pytest.mark.parametrize("length", [4, MAX_FOLDER_BYTES])
def test_a_taken_name_stops_no_daemon(
    short: Path, kind: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = short / ("h" * length)
    home.mkdir(mode=0o700)
    monkeypatch.setenv("UPWELL_HOME", str(home))
    TAKEN[kind](Path(folder_of_user(str(short))))
    place = DaemonPlace(str(home), str(short))
    key = Path(place.socket).stem
    is_long = length == MAX_FOLDER_BYTES
    assert place.folder == (f"{folder_of_user(str(short))}-{key}" if is_long else f"{home}/run")
    os.close(take_lock(place))
    assert is_private(place.folder)
    assert running(str(short)) == []


@pytest.mark.parametrize("length", [MAX_FOLDER_BYTES - len("/run"), MAX_FOLDER_BYTES, 1_000])
def test_the_path_of_a_socket_fits_macos(short: Path, length: int) -> None:
    Path(folder_of_user(str(short))).touch()
    home = f"{short}/".ljust(length, "h")
    place = DaemonPlace(home, str(short))
    assert len(f"{place.socket}.{LARGEST_PID}\0") <= MACOS_LIMIT
    assert (place.folder == f"{home}/run") == (length < MAX_FOLDER_BYTES)


def test_a_folder_of_another_user_is_not_used(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir(folder_of_user(str(short)), 0o700)
    other = os.getuid() + 1
    os.rename(folder_of_user(str(short)), short / f"upwell-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert DaemonPlace(str(short / "home"), str(short)).folder == f"{short}/home/run"


class Idle:
    """A service that has nothing to do."""

    async def answer(self, request: HookRequest, body: bytes, receipt: Receipt) -> bytes:
        return b"{}"

    def state(self) -> Mapping[str, str]:
        return {}


async def test_a_daemon_with_a_long_home_is_found_where_the_usual_name_is_taken(
    short: Path,
) -> None:
    home = short / ("h" * 200)
    home.mkdir(mode=0o700)
    Path(folder_of_user(str(short))).touch()
    daemon = Daemon(DaemonPlace(str(home), str(short)), Idle(), "0.3.0", idle_seconds=60.0)
    serving = asyncio.create_task(daemon.run())
    await asyncio.sleep(0)
    found = await asyncio.to_thread(daemon_at, str(home), str(short))
    assert found is not None
    assert found.answers
    assert await asyncio.to_thread(end, found)
    await serving


def test_a_folder_that_is_open_to_others_is_refused_as_the_last_resort(short: Path) -> None:
    home = str(short / ("h" * 200))
    Path(folder_of_user(str(short))).touch()
    folder = Path(DaemonPlace(home, str(short)).folder)
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(StoreUnwritable, match="is not private"):
        take_lock(DaemonPlace(home, str(short)))
