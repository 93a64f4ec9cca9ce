"""Looking at imported files: which there are, whether they changed, and what they say.

Links are not followed, devices and pipes never opened, hidden folders left out: a folder of notes
cannot lead anywhere else, and nothing in it can make a search hang.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from upwell.memory.sources import Form, Source

MARKDOWN = (".md", ".markdown")
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 200_000
"""Files of one source; a folder with more is no folder of notes."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not read, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there: its size in bytes, when it was changed, and the source it is of."""

    path: str
    size: int
    mtime_ns: int
    source: Source


class Unreadable(Exception):
    """A file says nothing; the message is why."""


def scan(sources: Iterable[Source], every: Collection[str]) -> tuple[list[Found], list[Problem]]:
    """The files of `sources`. `every` are the paths of all sources there are: what lies in one of
    them belongs to that one, not to a folder above it."""
    found: list[Found] = []
    problems: list[Problem] = []
    for source in sources:
        others = {path for path in every if path.startswith(source.path + os.sep)}
        try:
            info = os.stat(source.path, follow_symlinks=False)
        except OSError as error:
            if source.form is Form.MARKDOWN:
                problems.append(Problem(source.path, _why(error)))
            continue
        if stat.S_ISREG(info.st_mode):
            found.append(Found(source.path, info.st_size, info.st_mtime_ns, source))
        elif stat.S_ISDIR(info.st_mode) and source.form is Form.MARKDOWN:
            before = len(found)
            for one in _files(source, others, problems):
                found.append(one)
                if len(found) - before >= MAX_FILES:
                    problems.append(Problem(source.path, f"only {MAX_FILES} files are read"))
                    break
        else:
            problems.append(Problem(source.path, "it is no file and no folder any more"))
    return found, problems


def _files(source: Source, others: set[str], problems: list[Problem]) -> Iterator[Found]:
    folders = [source.path]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = entry.name
                    if name[0] == "." or entry.path in others:
                        continue
                    if name.endswith(MARKDOWN):
                        if entry.is_file(follow_symlinks=False) and _is_sound(entry, problems):
                            info = entry.stat(follow_symlinks=False)
                            yield Found(entry.path, info.st_size, info.st_mtime_ns, source)
                            continue
                        if entry.is_symlink():
                            problems.append(Problem(entry.path, "links are not followed"))
                    if entry.is_dir(follow_symlinks=False) and name not in SKIPPED_FOLDERS:
                        folders.append(entry.path)
        except OSError as error:
            problems.append(Problem(folder, _why(error)))


def _is_sound(entry: os.DirEntry[str], problems: list[Problem]) -> bool:
    if entry.path.isascii():
        return True
    try:
        entry.path.encode()
    except UnicodeEncodeError:
        problems.append(Problem(ascii(entry.path), "its name is not UTF-8"))
        return False
    return True


def read_bytes(path: str, root: str) -> bytes:
    """What a file holds, if it still is one and still lies in `root`.

    Raises:
        Unreadable: it cannot be read, is too large, or has become something else.
    """
    if os.path.realpath(path) != path or not (path == root or path.startswith(root + os.sep)):
        raise Unreadable("links are not followed")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise Unreadable("it is no file any more")
            if info.st_size > MAX_FILE_BYTES:
                most = MAX_FILE_BYTES / 1e6
                raise Unreadable(f"over {most:.0f} MB")
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Unreadable(_why(error)) from error


def text_of(data: bytes) -> str:
    """The text of a Markdown file.

    Raises:
        Unreadable: it is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 (byte {error.start})") from error


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
