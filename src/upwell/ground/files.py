"""Files of ours that are not databases: written whole or not at all."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path


def is_there(path: Path) -> bool:
    """Does a file stand at `path`? `Path.exists` raises and catches an error where none does, which
    is the common case of what is asked at every call."""
    return os.access(path, os.F_OK)


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
