"""Which project a folder belongs to, and what a project sees."""

import os
from functools import lru_cache
from pathlib import Path

_COMPRESSED = 4
_HEADER, _FIXED = 12, 62
_EXTENDED = 0x4000
"""Of git's index: the version whose paths are compressed, the bytes before the entries and of an
entry before its path (two more where its flags say so)."""


def project_of(folder: str | None) -> str | None:
    """The absolute root of the repository that `folder` lies in, else `folder` itself.

    None stays None: no folder, every project.
    """
    if not folder:
        return None
    return _root(folder if folder[0] == "/" else str(Path(folder).expanduser().absolute()))


def is_seen(owner: str | None, project: str | None) -> bool:
    """May work in `project` see what belongs to `owner`? Its own and what belongs to no project;
    None sees everything."""
    return project is None or owner in (None, project)


def repository_of(folder: str) -> str | None:
    """The absolute root of the repository that `folder` lies in, None when it lies in none."""
    root = project_of(folder)
    return root if root is not None and os.path.exists(f"{root}/.git") else None


@lru_cache(maxsize=256)
def _root(folder: str) -> str:
    path = Path(os.path.abspath(folder))
    for candidate in (path, *path.parents):
        if (candidate / ".git").exists():
            return str(candidate)
    return str(path)


def brings(root: str, path: str) -> bool:
    """Does the repository at `root` track the file at `path` (relative, with `/`)? Then it came
    with the clone. Reads git's index (gitformat-index(5)); git is not run."""
    git = Path(root) / ".git"
    name = path.encode() + b"\0"
    try:
        if git.is_file():
            git = Path(root, git.read_text(encoding="utf-8").removeprefix("gitdir:").strip())
        indexes = [git / "index", *git.glob("sharedindex.*")]
        return any(_lists(index.read_bytes(), name) for index in indexes if index.is_file())
    except (OSError, UnicodeDecodeError):
        return False


def _lists(index: bytes, name: bytes) -> bool:
    """Does the index hold `name`? Up to version 3 paths stand in it as they are, from 4 on each
    takes over the beginning of the one before."""
    if int.from_bytes(index[4:8]) < _COMPRESSED:
        return name in index
    path, at = b"", _HEADER
    for _ in range(int.from_bytes(index[8:12])):
        flags = int.from_bytes(index[at + _FIXED - 2 : at + _FIXED])
        at += _FIXED + (2 if flags & _EXTENDED else 0)
        dropped, at = _varint(index, at)
        end = index.find(b"\0", at) + 1
        if not end:
            break
        path = path[: len(path) - dropped] + index[at : end - 1]
        if path + b"\0" == name:
            return True
        at = end
    return False


def _varint(index: bytes, at: int) -> tuple[int, int]:
    """A number as packs write offsets, and where it ends."""
    value = index[at] & 0x7F if at < len(index) else 0
    while at < len(index) and index[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (index[at] & 0x7F if at < len(index) else 0)
    return value, at + 1
