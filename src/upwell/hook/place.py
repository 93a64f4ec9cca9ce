"""The files of a home's daemon, in a folder that belongs to the user; and `start()`, with which a
hook starts the daemon.

    /tmp/upwell-UID/          0700, owner checked, never a link
        KEY.sock              the socket (0600); KEY is a hash of the home's path
        KEY.lock              held by the daemon as long as it lives
        KEY.json              the daemon's description for `daemon status`
        KEY.starting          created by the hook that has just started the daemon

No environment variable changes the location of the folder, so that every daemon of a user can be
found. Its path is short, because macOS limits a socket's path to 103 bytes. If somebody else has
taken that name, the files are in the folder `run` of the home or, if the home's path is too long,
in the folder /tmp/upwell-UID-KEY. This file imports little, and only from the stdlib, because every
hook imports it. Unlike `client.py`, it is not compiled on every run, so `start()`, which most
events do not need, costs them little.
"""

import os
import stat
import sys
import time

try:
    from _sha2 import sha256
except ImportError:
    from hashlib import sha256

ROOT = "/tmp"
NAME = "upwell"
MAX_FOLDER_BYTES = 65
"""The daemon binds `FOLDER/KEY.sock.PID`, which adds up to 38 bytes to the folder's path."""


class DaemonPlace:
    """The paths of the files of the daemon for `home`."""

    def __init__(self, home: str, root: str = ROOT) -> None:
        self.home = os.path.realpath(home)
        home_bytes = self.home.encode(errors="replace")
        key: str = sha256(home_bytes).hexdigest()[:24]
        self.folder = folder_of_user(root)
        if os.path.lexists(self.folder) and not is_private(self.folder):
            is_short = len(home_bytes) + len("/run") <= MAX_FOLDER_BYTES
            self.folder = f"{self.home}/run" if is_short else f"{self.folder}-{key}"
        self._base = f"{self.folder}/{key}"

    @property
    def socket(self) -> str:
        return self._base + ".sock"

    @property
    def lock(self) -> str:
        return self._base + ".lock"

    @property
    def card(self) -> str:
        return self._base + ".json"

    @property
    def starting(self) -> str:
        return self._base + ".starting"


def folder_of_user(root: str = ROOT) -> str:
    return f"{root}/{NAME}-{os.getuid()}"


def default_home() -> str:
    """Return `UPWELL_HOME` or else the platform's default folder, as in `ground/files.py`."""
    variable = os.environ.get("UPWELL_HOME")
    if variable:
        return os.path.abspath(os.path.expanduser(variable))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/upwell")
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(os.path.abspath(base), "upwell")


def is_private(folder: str) -> bool:
    """Return whether this is a folder (not a link) that the user owns and nobody else can enter."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not stat.S_IMODE(status.st_mode) & 0o077
    )


def socket_inode(path: str) -> int:
    """Return the inode of the socket at this path, or 0 if this user owns no socket there."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    is_own = stat.S_ISSOCK(status.st_mode) and status.st_uid == os.getuid()
    return status.st_ino if is_own else 0


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
