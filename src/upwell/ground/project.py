"""Projects: the repository that a folder belongs to, and what a project may see.

A folder has one project, however it is reached: links are resolved, as git and the shell do. A
workspace that is opened through a link therefore has the memories and rules of the real folder. So
has one whose path is typed in another case, on macOS.
"""

import os
import sys
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from upwell.ground.remote_address import address_of, main_worktree_of

MAX_INDEX_BYTES = 64_000_000
MAX_ENTRIES = 500_000
MAX_PATH_BYTES = 4_096
MAX_PATHS_BYTES = 200_000_000
MAX_SHARED = 8
MAX_POINTER_CHARS = 65_536
"""Limits on git's files, far above what ordinary repositories need."""
MAX_LINK_DEPTH = 40
"""A link into a project is looked for in at most this many of a path's first parts."""
FOLDS_CASE = sys.platform == "darwin"
"""Whether file systems usually take names that differ in case for the same."""
_COMPRESSED = 4
_HEADER, _FIXED = 12, 62
_EXTENDED = 0x4000
"""The layout of git's index. Since version `_COMPRESSED`, paths are compressed. The header has
`_HEADER` bytes. Each entry has `_FIXED` bytes before its path, or two more if the flag `_EXTENDED`
is set."""


def project_of(folder: str | None) -> str | None:
    """Return the real path of the root of the repository around `folder`. Outside a repository,
    return the real path of `folder`.

    Returns None if `folder` is None. None stands for every project.
    """
    return _root(real_folder(folder)) if folder else None


def real_folder(folder: str) -> str:
    """Return the absolute path of a folder, with links resolved. The folder need not exist."""
    path = os.path.abspath(os.path.expanduser(folder) if folder[:1] == "~" else folder)
    if len(path) > MAX_PATH_BYTES:
        # Such a folder cannot exist, and resolving it would take quadratic time.
        return path
    return _real(path)


def _real(path: str) -> str:
    """Return `path` with links resolved, or `path` itself if that cannot be done: for a NUL or a
    lone surrogate, which no file's name contains, or for a long chain of links."""
    try:
        real = os.path.realpath(path)
        return _as_stored(real) if FOLDS_CASE else real
    except (ValueError, OSError, RecursionError):
        return path


@lru_cache(maxsize=256)
def _as_stored(path: str) -> str:
    """Return `path` with the case, and the form of accents, of the names that the disk has. Parts
    that do not exist or cannot be listed stay as they are."""
    stored = ""
    for name in path.split("/")[1:]:
        stored = f"{stored}/{_stored_name(stored or '/', name)}"
    return stored


def _stored_name(folder: str, name: str) -> str:
    try:
        names = os.listdir(folder)
        if name in names:
            return name
        alike = (each for each in names if _folded(each) == _folded(name))
        path = os.path.join(folder, name)
        return next((each for each in alike if os.path.samefile(f"{folder}/{each}", path)), name)
    except OSError:
        return name


def _folded(name: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", name).casefold()


def link_into(project: str, path: str) -> tuple[str, str] | None:
    """If the absolute `path` leads into `project` only through a link, return the shortest
    beginning of `path` that is in the project, and its real path. Otherwise, return None."""
    if is_below(path, project) or "\0" in path or len(path) > MAX_PATH_BYTES:
        return None
    parts = os.path.normpath(path).split("/")[1 : MAX_LINK_DEPTH + 1]
    beginnings = ("/" + "/".join(parts[:end]) for end in range(1, len(parts) + 1))
    for beginning in takewhile(os.path.lexists, beginnings):
        real = _real(beginning)
        if is_below(real, project):
            return beginning, real
    return None


def in_project(path: str, project: str | None) -> str:
    """Return `path` as the project's own root names it, if it leads into `project` through a link.
    Any other path is returned as is."""
    link = link_into(project, path) if project and path[:1] == "/" else None
    return link[1] + os.path.normpath(path)[len(link[0]) :] if link else path


def is_below(path: str, folder: str) -> bool:
    """Return whether `path` is `folder` or inside it. Compares only the text."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def project_named(folder: Path) -> str:
    """Return the project of a folder that the user named. If the folder does not exist, return its
    path, which still identifies the project of a deleted repository."""
    path = real_folder(str(folder))
    return _root(path) if os.path.exists(path) else path


def is_seen(owner: str | None, project: str | None) -> bool:
    """Return whether work in `project` may see `owner`'s data.

    A project sees global data, its own data, and data stored under the remote address that all
    clones of the repository share. A linked worktree also sees the data of the main worktree. If
    `project` is None, all data is visible.
    """
    return project is None or is_here(owner, project)


def is_here(owner: str | None, project: str | None) -> bool:
    """Return whether `owner`'s data is global or belongs to `project`."""
    return owner is None or is_own(owner, project)


def is_own(owner: str | None, project: str | None) -> bool:
    """Return whether `owner` is the project, the remote address of its repository, or its main
    worktree."""
    if owner is None or owner == project:
        return owner is not None
    return owner == (main_worktree_of(project) if owner[:1] == "/" else address_of(project))


def owners_of(project: str) -> tuple[str, str, str]:
    """Return the names under which data of a project is stored: the path, the remote address of the
    repository, and the main worktree. The path stands in for a remote address or main worktree that
    does not exist."""
    return project, address_of(project) or project, main_worktree_of(project) or project


def repository_of(folder: str) -> str | None:
    """Return the absolute root of the repository around `folder`, or None."""
    root = project_of(folder)
    return root if root is not None and os.path.exists(f"{root}/.git") else None


@lru_cache(maxsize=256)
def _root(path: str) -> str:
    if len(path) > MAX_PATH_BYTES:
        return path
    candidate = path
    while not os.path.exists(os.path.join(candidate, ".git")):
        if candidate in ("/", parent := os.path.dirname(candidate)):
            return path
        candidate = parent
    return candidate


def tracks(root: str, path: str) -> bool:
    """Return whether the repository at `root` tracks the file at `path` (relative, with `/`). If
    `path` ends with `/`, return whether it tracks any file in that folder.

    Clones contain tracked files, so somebody else may have written them. This reads git's index
    (gitformat-index(5)) without running git. The result is True if the index is too large or
    visibly damaged.
    """
    git = Path(root) / ".git"
    name = os.fsencode(path) if path.endswith("/") else path.encode() + b"\0"
    try:
        if git.is_file():
            with git.open(encoding="utf-8") as file:
                pointer = file.read(MAX_POINTER_CHARS)
            git = Path(root, pointer.removeprefix("gitdir:").strip())
        indexes = [git / "index", *git.glob("sharedindex.*")]
        if len(indexes) > MAX_SHARED:
            return True
        return any(_lists(_index(index), name) for index in indexes if index.exists())
    except FileNotFoundError:
        return False
    except (OSError, ValueError, IndexError):
        return True


def _index(path: Path) -> bytes:
    """Return the content of an index.

    Raises:
        ValueError: the file is not a valid index, or exceeds the limits.
    """
    if not path.is_file() or path.stat().st_size > MAX_INDEX_BYTES:
        raise ValueError("not an index")
    content = path.read_bytes()
    if not content.startswith(b"DIRC") or int.from_bytes(content[8:12]) > MAX_ENTRIES:
        raise ValueError("not an index")
    return content


def _lists(index: bytes, name: bytes) -> bool:
    """Return whether the index contains a path that begins with `name`.

    Up to version 3, paths are stored in full. From version 4, a path is stored without the prefix
    that it shares with the previous path.

    Raises:
        ValueError: a path is damaged or too long, or the index ends inside an entry.
    """
    if int.from_bytes(index[4:8]) < _COMPRESSED:
        return name in index
    path, offset, length = b"", _HEADER, 0
    for _ in range(int.from_bytes(index[8:12])):
        flags = int.from_bytes(index[offset + _FIXED - 2 : offset + _FIXED])
        offset += _FIXED + (2 if flags & _EXTENDED else 0)
        dropped, offset = _varint(index, offset)
        end = index.find(b"\0", offset) + 1
        if not end or end - offset > MAX_PATH_BYTES or dropped > len(path):
            raise ValueError("a path is damaged")
        path = path[: len(path) - dropped] + index[offset : end - 1]
        length += len(path)
        if len(path) > MAX_PATH_BYTES or length > MAX_PATHS_BYTES:
            raise ValueError("a path is too long")
        if (path + b"\0").startswith(name):
            return True
        offset = end
    return False


def _varint(index: bytes, offset: int) -> tuple[int, int]:
    """Return the number at `offset`, encoded as in git's packs, and the offset after the number."""
    value = index[offset] & 0x7F if offset < len(index) else 0
    while offset < len(index) and index[offset] & 0x80:
        offset += 1
        value = ((value + 1) << 7) | (index[offset] & 0x7F if offset < len(index) else 0)
    return value, offset + 1
