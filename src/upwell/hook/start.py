"""Start the daemon from a hook. Most events find a running daemon and do not need this code, so it
is not in `client.py`, which is compiled on every run.
"""

import os
import sys
import time

from upwell.hook.place import DaemonPlace, is_private

START_AGAIN_SECONDS = 15.0
"""If the daemon is not running after this time, a hook starts another one."""


def start(place: DaemonPlace) -> int:
    """Start the daemon without waiting for it, unless a hook has just started one. Returns its
    process id, or 0."""
    if not os.path.isdir(place.folder):
        os.mkdir(place.folder, 0o700)
    if not is_private(place.folder) or is_starting(place, START_AGAIN_SECONDS):
        return 0
    if os.path.lexists(place.starting):
        os.unlink(place.starting)
    # O_EXCL ensures that only one of several simultaneous hooks starts the daemon.
    os.close(os.open(place.starting, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = f"import sys; sys.path.append({root!r}); from upwell.__main__ import main; main()"
    nowhere = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)] + [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)
    ]
    command = [sys.executable, "-I", "-c", code, "daemon", "run", "--from-hook"]
    environment = {**os.environ, "UPWELL_HOME": place.home}
    return os.posix_spawn(sys.executable, command, environment, file_actions=nowhere, setsid=True)


def is_starting(place: DaemonPlace, seconds: float) -> bool:
    """Return whether a daemon was started within this time and is not listening yet. Once it
    listens, the daemon removes the `starting` file.
    """
    try:
        age = time.time() - os.lstat(place.starting).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age < seconds
