"""Where a home's daemon is met: a folder of the user's that no environment moves.

    /tmp/upwell-UID/          0700, owner checked, never a link
        KEY.sock              the socket (0600); KEY is a hash of the home's path
        KEY.lock              held by the daemon as long as it lives
        KEY.json              what `daemon status` tells of it
        KEY.starting          a hook has started it just now

A fixed folder, so that every daemon of a user can be found, whatever the environment it was started
in; and short, since a socket's path has at most 104 bytes. Stdlib only, and little of it: hooks
import it.
"""

import os
import stat
import sys

try:
    from _sha2 import sha256
except ImportError:
    from hashlib import sha256

ROOT = "/tmp"
NAME = "upwell"


class Place:
    """The files of one home's daemon."""

    def __init__(self, home: str, root: str = ROOT) -> None:
        self.home = os.path.realpath(home)
        self.folder = folder_of_user(root)
        key: str = sha256(self.home.encode(errors="replace")).hexdigest()[:24]
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
    """Where this user's daemons are met."""
    return f"{root}/{NAME}-{os.getuid()}"


def default_home() -> str:
    """`UPWELL_HOME`, else the platform's folder: the same as `ground/home.py` finds."""
    named = os.environ.get("UPWELL_HOME")
    if named:
        return os.path.abspath(os.path.expanduser(named))
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/upwell")
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(os.path.abspath(base), "upwell")


def is_private(folder: str) -> bool:
    """Is it a folder of ours that nobody else may enter? A link is not."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not stat.S_IMODE(found.st_mode) & 0o077
    )


def is_socket(path: str) -> bool:
    """Is it a socket of ours?"""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()
