"""List the imported files, find those that have changed, and read them.

Symbolic links are not followed, devices and pipes are never read, and hidden files inside a source
are left out. A scan therefore cannot leave an imported folder, and nothing in the folder can make a
search hang. Hidden folders such as `.github` are read, unless a program keeps its own files there.
"""

import os
import stat
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from upwell.memory.records import is_text
from upwell.memory.sources import Form, Source

MARKDOWN = (".md", ".markdown")
SKIPPED_FOLDERS = frozenset(
    """
    node_modules __pycache__ .git .hg .svn .jj .bzr .upwell .specstory .history .trash .local
    .stversions .snapshots .npm .yarn .pnpm-store .cargo .rustup .gradle .m2 .nvm .pyenv .rbenv
    .bundle .tox .nox .eggs .venv .virtualenvs .direnv .terraform .next .nuxt .svelte-kit .astro
    .docusaurus .angular .dart_tool .build .stack-work .entire
    """.split()
)
"""Folders of programs: repositories, installed packages, build output, former versions of files,
and transcripts of sessions, which upwell reads by itself."""
_TEMPORARY = ("cache", "trash", "tmp", "temp")
_MARKS_OF_PROGRAMS = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
"""Files that mark a virtual environment and a cache (https://bford.info/cachedir/)."""
MAX_FILE_BYTES = 10_000_000
MAX_FILES = 200_000
"""Once a source has this many files, its remaining folders are not scanned. A larger source is
unlikely to contain only notes."""


class Problem(Struct, frozen=True):
    """A path that was left out, and the reason."""

    path: str
    why: str


class FoundFile(Struct, frozen=True):
    """A file in a source, with its size in bytes and its modification time in nanoseconds."""

    path: str
    size: int
    mtime_ns: int
    source: Source


class KnownFile(Struct, frozen=True):
    """The state of a file when it was last read. `key` is the key of its source."""

    size: int
    mtime_ns: int
    hash: str
    key: str


class Look(Struct):
    """The result of a scan. `changed` are the new or changed files, and `present_paths` are the
    paths of all files."""

    changed: list[FoundFile] = field(default_factory=list)
    present_paths: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def take(
        self, path: str, info: os.stat_result, source: Source, key: str, before: KnownFile | None
    ) -> None:
        self.present_paths.add(path)
        if (
            before is None
            or before.mtime_ns != info.st_mtime_ns
            or before.size != info.st_size
            or before.key != key
        ):
            self.changed.append(FoundFile(path, info.st_size, info.st_mtime_ns, source))


class UnreadableFile(Exception):
    """A file cannot be read. The message is the reason."""


def scan(sources: Iterable[Source], every: Collection[str], known: Mapping[str, KnownFile]) -> Look:
    """Scan the files in `sources`. `every` lists the paths of all sources: if one of them lies
    inside another, its files belong to it and not to the outer source."""
    look = Look()
    for source in sources:
        try:
            info = os.stat(source.path, follow_symlinks=False)
        except OSError as error:
            if source.form is Form.MARKDOWN:
                look.problems.append(Problem(source.path, _why(error)))
            continue
        if stat.S_ISREG(info.st_mode):
            look.take(source.path, info, source, source.key, known.get(source.path))
        elif stat.S_ISDIR(info.st_mode) and source.form is Form.MARKDOWN:
            others = {path for path in every if path != source.path and source.holds(path)}
            _scan_folder(source, others, known, look)
        else:
            look.problems.append(Problem(source.path, "it is no longer a file or folder"))
    return look


def _scan_folder(
    source: Source, others: set[str], known: Mapping[str, KnownFile], look: Look
) -> None:
    key, end = source.key, len(look.present_paths) + MAX_FILES
    folders = [(source.path, False)]
    while folders:
        folder, is_hidden = folders.pop()
        if len(look.present_paths) >= end:
            look.problems.append(
                Problem(folder, f"left out, after {MAX_FILES:,} files of this source")
            )
            return
        try:
            with os.scandir(folder) as found:
                entries = list(found)
            if folder != source.path and _is_of_program(entries, is_hidden=is_hidden):
                continue
            for entry in entries:
                name, path = entry.name, entry.path
                if path in others:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    is_temporary = name[0] == "." and any(n in name.lower() for n in _TEMPORARY)
                    if not is_temporary and name not in SKIPPED_FOLDERS:
                        folders.append((path, is_hidden or name[0] == "."))
                elif name[0] != "." and name.endswith(MARKDOWN) and _may_be_read(entry, look):
                    info = entry.stat(follow_symlinks=False)
                    look.take(path, info, source, key, known.get(path))
        except OSError as error:
            look.problems.append(Problem(folder, _why(error)))


def _is_of_program(entries: Iterable[os.DirEntry[str]], *, is_hidden: bool) -> bool:
    """True for a virtual environment and a cache, and for a checkout in a hidden folder: the
    worktree of an agent, or a plugin."""
    names = {entry.name for entry in entries}
    return not _MARKS_OF_PROGRAMS.isdisjoint(names) or (is_hidden and ".git" in names)


def _may_be_read(entry: os.DirEntry[str], look: Look) -> bool:
    if entry.is_symlink():
        look.problems.append(Problem(entry.path, "symbolic links are not followed"))
        return False
    if not entry.is_file(follow_symlinks=False):
        return False
    if entry.path.isascii() or is_text(entry.path):
        return True
    look.problems.append(Problem(ascii(entry.path), "its name is not UTF-8"))
    return False


def read_bytes(path: str, root: str) -> bytes:
    """Read a regular file inside `root`.

    Raises:
        Unreadable: the file cannot be read, is too large, is no longer a regular file, is outside
            `root`, or is behind a symbolic link.
    """
    if os.path.realpath(path) != path or not (path == root or path.startswith(root + os.sep)):
        raise UnreadableFile("symbolic links are not followed")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise UnreadableFile("it is no longer a file")
            if info.st_size > MAX_FILE_BYTES:
                most = MAX_FILE_BYTES / 1e6
                raise UnreadableFile(f"over {most:.0f} MB")
            return file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(_why(error)) from error


def text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"not UTF-8 (byte {error.start})") from error


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
