"""The home, the folder with all of upwell's files, and how files are locked, written and read.

A file is written completely or not at all. Files written by users and other programs are read with
a `UsageError` for every failure.
"""

import errno
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.ground.errors import StoreUnwritable, UsageError

LAUNCHER = "upwell-hook"
"""The script in the home that agents' hooks run."""
MAX_PATH_BYTES = 400
"""The maximum length of the home's path. SQLite limits file paths to 512 bytes, and backups
have longer paths than the home.
"""


def default_home() -> Path:
    """Return `UPWELL_HOME`, or the platform's data folder for upwell."""
    variable = os.environ.get("UPWELL_HOME")
    if variable:
        return Path(os.path.expanduser(variable)).absolute()
    if sys.platform.startswith("linux") and (base := os.environ.get("XDG_DATA_HOME")):
        return Path(base).absolute() / "upwell"
    return usual_home()


def usual_home() -> Path:
    """Return the home that is used when no environment variable is set. Programs that run in
    another environment, such as agents, find only this home.
    """
    if sys.platform.startswith("linux"):
        return Path(os.path.expanduser("~/.local/share/upwell")).absolute()
    from platformdirs import user_data_path

    return user_data_path("upwell", appauthor=False)


class Inside:
    """The path of a file or folder in a home."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, home: "Home", owner: type["Home"]) -> Path:
        return home.root / self._name


class Home(Struct, frozen=True):
    """The files of one installation under `root`, which normally has mode 0700 (most files have
    0600)."""

    root: Path

    config_file = Inside("config.toml")
    lexicon_file = Inside("lexicon.toml")
    memory_db = Inside("memory.db")
    index_db = Inside("index.db")
    ledger_db = Inside("ledger.db")
    sessions_db = Inside("sessions.db")
    notes_file = Inside("stm.json")
    cleared_notes_file = Inside("stm.trash.json")
    origins_file = Inside("stm.origins.json")
    folder_file = Inside("folder.json")
    backups = Inside("backups")
    logs = Inside("log")
    secret_file = Inside("secret")
    export_key_file = Inside("export-key")
    offer_file = Inside("offer.json")
    lists_file = Inside("tools.json")
    token_file = Inside("token")
    tokens_file = Inside("tokens.json")
    logins_file = Inside("logins.json")
    hooks_file = Inside("hooks.json")
    hook_launcher = Inside(LAUNCHER)
    server_launcher = Inside("bin/upwell")
    clients_file = Inside("clients.json")
    wrapped_file = Inside("wrapped.json")
    inbox_file = Inside("inbox.json")
    setup_file = Inside("setup.json")
    pause_file = Inside("paused")
    moves = Inside("moves")
    clock_file = Inside("clock")
    audit_file = Inside("audit.jsonl")
    gateway_token_file = Inside("gateway-token")
    team_queue_file = Inside("team-queue.jsonl")

    def _is_ours(self) -> bool:
        """Return whether the folder is empty or contains upwell's files. The permissions of any
        other folder must not be changed."""
        names = {path.name for path in self.root.iterdir()}
        return not names or bool(
            names & {"config.toml", "memory.db", "ledger.db", "log", "secret", "stm.json"}
        )

    def prepare(self) -> "Home":
        """Create the folder, accessible only to the user. An existing folder that has only other
        files keeps its permissions.

        Raises:
            StoreUnwritable: the folder cannot be created, belongs to another user or is a file, or
                its path is too long for SQLite.
        """
        if len(os.fsencode(self.root.absolute())) > MAX_PATH_BYTES:
            raise StoreUnwritable(
                f"cannot use {str(self.root)[:60]}… as upwell's home: its path is too long",
                hint=f"set UPWELL_HOME to a folder whose path has at most {MAX_PATH_BYTES} bytes",
            )
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            info = self.root.stat()
        except OSError as error:
            raise StoreUnwritable(
                f"cannot use {self.root} as upwell's home: {error.strerror}",
                hint="set UPWELL_HOME to a folder you can write to",
            ) from error
        if hasattr(os, "getuid") and info.st_uid != os.getuid():
            raise StoreUnwritable(
                f"{self.root} belongs to another user",
                hint="set UPWELL_HOME to a folder of your own",
            )
        if stat.S_IMODE(info.st_mode) & 0o077 and self._is_ours():
            self.root.chmod(0o700)
        return self


LOCK_SECONDS = 8.0
"""How long to wait for a lock. Most locks are held for milliseconds."""
SOON_SECONDS, SOON_POLL_SECONDS, POLL_SECONDS = 0.25, 0.005, 0.1
"""A waiting process checks often at first, then less often, because fifty processes that keep
checking would starve the process that holds the lock.
"""

Stamp = tuple[int, int, int]
"""A file's modification time (ns), size and inode."""


def file_exists(path: Path) -> bool:
    """Return whether a file exists at `path`. This is faster than `Path.exists()`, which raises and
    catches an error in the common case that no file exists.
    """
    return os.access(path, os.F_OK)


def stamp(path: str | Path) -> Stamp | None:
    """Return a value that changes when the file is written, or None if the file does not exist."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


@contextmanager
def exclusively(path: Path, seconds: float | None = None) -> Iterator[None]:
    """Hold the lock for changing or replacing a file. Gives up after about `seconds` (default:
    `LOCK_SECONDS`) if another process holds it.

    Raises:
        StoreUnwritable: another process held the lock for too long, or the lock cannot be created.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(f"{path}.lock", mode=0o600)
    most = LOCK_SECONDS if seconds is None else seconds
    try:
        try:
            lock.acquire(timeout=min(SOON_SECONDS, most), poll_interval=SOON_POLL_SECONDS)
        except Timeout:
            lock.acquire(timeout=most, poll_interval=POLL_SECONDS)
    except Timeout as error:
        raise StoreUnwritable(
            f"{lock.lock_file} is locked by another process",
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
    """Convert an `OSError` raised in the block to `StoreUnwritable`."""
    try:
        yield
    except OSError as error:
        raise StoreUnwritable(
            f"cannot write {path}: {error.strerror}",
            hint="check the folder's permissions and the disk",
        ) from error


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600, prefix: str = "") -> None:
    """Replace the content of `path` atomically.

    Writes and syncs a temporary file in the same folder, renames that file, and syncs the folder.
    The content is then on disk. Lone surrogates are written as escapes. The name of the temporary
    file begins with `prefix`, by default with a dot and the name of the file.

    Raises:
        OSError: the file could not be replaced, or the folder could not be synced.
    """
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=prefix or _partial_file(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode != 0o600:
                os.fchmod(descriptor, mode)
            file.write(raw)
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


def append_lines(path: Path, lines: str | bytes) -> None:
    """Append lines to a file (mode 0600). They are on disk when this returns. A newline comes
    first, because a killed process may have left an incomplete line.

    Raises:
        StoreUnwritable: the file cannot be written.
    """
    raw = lines if isinstance(lines, bytes) else lines.encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with writing(path), open(os.open(path, flags, 0o600), "ab") as file:
        file.write(b"\n" + raw)
        file.flush()
        os.fsync(file.fileno())


def read_regular_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file is missing or cannot be read, or it is a pipe or a device, which might
            never end.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def create_once(path: Path, content: bytes) -> None:
    """Create the file at `path` (mode 0600) with `content`, unless the file exists.

    The file is complete as soon as it exists, even if several processes create it at once.

    Raises:
        OSError: the file cannot be created.
    """
    if os.path.lexists(path):
        return
    descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=_partial_file(path))
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        os.unlink(fresh)


def remove_partial_files(path: Path, prefix: str = "") -> None:
    """Remove temporary files that dead writers of `path` have left behind. `prefix` is as in
    `write_atomically()`.

    The caller must hold the lock of `path`, because a live writer still needs its temporary file.
    """
    with suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix or _partial_file(path)):
                with suppress(OSError):
                    os.unlink(entry.path)


def _partial_file(path: Path) -> str:
    return f".{path.name}-"


MAX_FILE_BYTES = 64_000_000


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        UsageError: the file is missing, not a regular file, too large, or not UTF-8.
    """
    try:
        if path.stat().st_size > max_bytes:
            raise too_large(path, max_bytes)
        return read_regular_file(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {(error.strerror or '').lower()}",
            hint="check the path and its permissions",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"cannot read {path}: not UTF-8 (byte {error.start})", hint="convert it to UTF-8"
        ) from error


def read_json(path: Path, max_bytes: int = MAX_FILE_BYTES) -> Any:
    """Return the value of a JSON file.

    Raises:
        UsageError: as for `read_text()`, or the content is not JSON.
    """
    text = read_text(path, max_bytes)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UsageError(
            f"cannot read {path}: nested too deeply", hint="upwell cannot use this file"
        ) from error
    except ValueError as error:
        raise UsageError(f"cannot read {path}: not JSON: {error}", hint="fix the file") from error


def too_large(path: Path, max_bytes: int) -> UsageError:
    """Return the error for a file that is larger than `max_bytes`."""
    return UsageError(
        f"cannot read {path}: it is larger than {max_bytes:,} bytes", hint="split the file"
    )
