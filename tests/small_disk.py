"""A small disk that tests can fill and free. It is a file system of its own: when it is full, the
kernel refuses further bytes as on any full disk, but nothing else on the machine is short of
space."""

import errno
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

NOBODY = 65_534
_SHARED_MEMORY = Path("/dev/shm")
_MOST_MEGABYTES = 256
"""A larger `/dev/shm` is not used, because a test fills all of it."""


class SmallDisk:
    """A tmpfs of some megabytes, for the user under whom PostgreSQL runs.

    It is mounted in a mount namespace of its own, and lives as long as the process that holds the
    namespace; other processes reach it through that process's `/proc/PID/root`. Root may mount it;
    other users need a user namespace. In a container that allows neither, `/dev/shm` is used.
    """

    def __init__(self, megabytes: int) -> None:
        self.inner = self._mounted_at = Path(tempfile.mkdtemp(prefix="upwell-disk-"))
        self.inner.chmod(0o755)
        self._holder: subprocess.Popen[bytes] | None = None
        mount = f"mount -t tmpfs -o size={megabytes}m,mode=1777 upwell {self.inner} && echo done"
        attempts = {
            "unshare -m": f"{mount} && exec setpriv --reuid {NOBODY} --regid {NOBODY} "
            "--clear-groups cat",
            "unshare -Urm": f"{mount} && exec cat",
        }
        for namespace, script in list(attempts.items())[0 if os.geteuid() == 0 else 1 :]:
            holder = subprocess.Popen(
                [*namespace.split(), "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert holder.stdout
            if holder.stdout.readline() == b"done\n":
                self._holder = holder
                self.path = Path(f"/proc/{holder.pid}/root{self.inner}")
                return
            holder.communicate()
        self.path = self.inner = self._in_shared_memory()

    def _in_shared_memory(self) -> Path:
        total = shutil.disk_usage(_SHARED_MEMORY).total >> 20
        assert total <= _MOST_MEGABYTES, (
            "the tests of a full disk need a small file system: allow this machine or container to "
            f"mount a tmpfs or to create user namespaces, or give it a /dev/shm of at most "
            f"{_MOST_MEGABYTES} MB"
        )
        path = Path(tempfile.mkdtemp(prefix="upwell-disk-", dir=_SHARED_MEMORY))
        path.chmod(0o777)
        return path

    def enter(self) -> None:
        """Make this process see the disk at `inner`. SQLite follows links, and `/proc/PID/root` is
        one that leads nowhere else. Only a process with a single thread may change its namespace.
        """
        if self._holder is None:
            return
        for kind in ("mnt",) if os.geteuid() == 0 else ("user", "mnt"):
            with Path(f"/proc/{self._holder.pid}/ns/{kind}").open() as namespace:
                os.setns(namespace.fileno())

    def leave_free(self, size: int) -> None:
        """Leave this number of bytes free."""
        (self.path / "ballast").unlink(missing_ok=True)
        system = os.statvfs(self.path)
        ballast = max(0, system.f_bavail * system.f_bsize - size)
        (self.path / "ballast").write_bytes(bytes(ballast))

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.path / "ballast").open("ab", buffering=0) as ballast:
            size = 1 << 20
            while size:
                try:
                    ballast.write(b"-" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Make space again."""
        (self.path / "ballast").unlink()

    def remove(self) -> None:
        if self._holder:
            self._holder.communicate()
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self._mounted_at.rmdir()
