"""Starts the daemon from a hook. Most events find a daemon and do not need this code, so it is not
in `client.py`, which is compiled at every run.
"""

import os
import sys
import time

from upwell.hook.place import Place, is_private

START_AGAIN_SECONDS = 15.0
"""If no daemon has come up after this time, a hook starts another one."""


def start(place: Place) -> int:
    """Start the daemon, unless a hook has just done so, and do not wait for it. Returns its process
    id, 0 for none."""
    if not os.path.isdir(place.folder):
        os.mkdir(place.folder, 0o700)
    if not is_private(place.folder) or is_starting(place, START_AGAIN_SECONDS):
        return 0
    if os.path.lexists(place.starting):
        os.unlink(place.starting)
    # Exclusive: of several hooks at the same moment, only one starts the daemon.
    os.close(os.open(place.starting, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({root!r}); from upwell.__main__ import main; main()"
    nowhere = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)] + [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)
    ]
    command = [sys.executable, "-I", "-c", code, "daemon", "run", "--from-hook"]
    environment = {**os.environ, "UPWELL_HOME": place.home}
    return os.posix_spawn(sys.executable, command, environment, file_actions=nowhere, setsid=True)


def is_starting(place: Place, seconds: float) -> bool:
    """True if a daemon was started within that time and does not listen yet. The daemon removes the
    file `starting` once it listens.
    """
    try:
        age = time.time() - os.lstat(place.starting).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age < seconds


def configured_cold_seconds(home: str) -> float | None:
    """`hook.cold_ms` of `config.toml` in seconds, None if it is not set."""
    path = os.path.join(home, "config.toml")
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        text = file.read()
    # Importing tomllib and parsing takes 10 ms, so this is done only for a file that may hold the
    # key.
    if b"cold_ms" not in text:
        return None
    import tomllib

    try:
        value = tomllib.loads(text.decode())["hook"]["cold_ms"]
    except (ValueError, KeyError, TypeError):
        return None
    return value / 1000 if type(value) is int and value >= 0 else None
