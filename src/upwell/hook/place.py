"""Where a home's daemon is met: a folder of the user's that no environment moves.

    /tmp/upwell-UID/          0700, owner checked, never a link
        KEY.sock              the socket (0600); KEY is a hash of the home's path
        KEY.lock              held by the daemon as long as it lives
        KEY.json              what `daemon status` tells of it
        KEY.starting          a hook has started it just now

Where there are no Unix sockets, or `UPWELL_HOOK_TCP=1` says so, `KEY.sock` is a file (0600) with a
port of 127.0.0.1 and a token.

A fixed folder, so that every daemon of a user can be found, whatever the environment it was started
in; and short, since a socket's path has at most 104 bytes. Stdlib only, and little of it: hooks
import it.
"""

import _socket
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


def over_tcp() -> bool:
    """Is the daemon met on loopback, since there are no Unix sockets, or since it is asked for?"""
    return os.environ.get("UPWELL_HOOK_TCP") == "1" or not hasattr(_socket, "AF_UNIX")


def door_at(path: str) -> int:
    """The inode of what a daemon is met by at this path: a socket of ours, or the file with its
    port; 0 where there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    is_one = stat.S_ISREG if over_tcp() else stat.S_ISSOCK
    return found.st_ino if is_one(found.st_mode) and found.st_uid == os.getuid() else 0


def port_and_token(path: str) -> tuple[int, str]:
    """What the file at this path says.

    Raises:
        OSError: it cannot be read, or says something else.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        port, _, token = os.read(descriptor, 200).decode("ascii", "replace").partition(" ")
    finally:
        os.close(descriptor)
    if not port.isdecimal() or not 0 < int(port) < 65_536 or len(token) < 32:
        raise OSError("no port and token")
    return int(port), token


def proof_of(token: str, who: str, nonce: str) -> bytes:
    """A line that only somebody who has the token can say to `nonce`. What one side (`daemon`,
    `client`) says is of no use as the other."""
    digest: str = sha256(f"{who} {token} {nonce}".encode()).hexdigest()
    return digest.encode() + b"\n"
