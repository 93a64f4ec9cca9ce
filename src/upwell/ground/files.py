"""Files of ours: locked while they are changed, and written whole or not at all."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from upwell.ground.errors import StoreUnwritable

LOCK_SECONDS = 8.0
POLL_SECONDS = 0.005
"""Locks of ours are held for milliseconds."""

Stamp = tuple[int, int, int]
"""When a file was written (ns), how large it is, and its inode."""


def is_there(path: Path) -> bool:
    """Does a file stand at `path`? `Path.exists` raises and catches an error where none does, which
    is the common case of what is asked at every call."""
    return os.access(path, os.F_OK)


def stamp(path: str | Path) -> Stamp | None:
    """What differs from last time when a file was written; None where there is none."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """The lock under which a file is changed or replaced.

    Raises:
        StoreUnwritable: another process has held it for too long, or it cannot be made.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path}.lock", timeout=LOCK_SECONDS, mode=0o600, poll_interval=POLL_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise StoreUnwritable(
            f"{lock.lock_file} is held by another process",
            hint="try again in a minute, or end that process",
        ) from error
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {lock.lock_file}: {error.strerror}",
            hint="check the folder's owner and permissions",
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system says about a file that cannot be written, in our words."""
    try:
        yield
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {path}: {error.strerror}",
            hint="check the folder's permissions and the disk",
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Replace `path` by `text` (0600): a temporary file beside it, fsync, rename, fsync of the
    folder. It is on the disk when this returns. Lone surrogates are written as escapes.

    Raises:
        OSError: nothing was changed.
    """
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=_half(path))
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_whole(path: Path) -> bytes:
    """What stands in a file. A pipe or a device is none: reading it might never end.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no file", str(path))
    return path.read_bytes()


def make_once(path: Path, content: bytes) -> None:
    """Make `path` (0600) where there is nothing; whole from the first moment it is there, whoever
    else makes it at the same time.

    Raises:
        OSError: it cannot be made.
    """
    if os.path.lexists(path):
        return
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=_half(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        os.unlink(fresh)


def clear_halves(path: Path) -> None:
    """Remove what writers of `path` left that died before they were done. Only for who holds the
    lock under which it is written: anybody else's half may be about to become whole."""
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(_half(path)):
                with suppress(OSError):
                    os.unlink(entry.path)


def _half(path: Path) -> str:
    return f".{path.name}-"
