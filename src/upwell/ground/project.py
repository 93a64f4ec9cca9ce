"""Which project a folder belongs to."""

import os
from functools import lru_cache
from pathlib import Path


def project_of(folder: str | None) -> str | None:
    """The absolute root of the repository that `folder` lies in, else `folder` itself.

    None stays None: no folder, every project.
    """
    if not folder:
        return None
    return _root(folder if folder[0] == "/" else str(Path(folder).expanduser().absolute()))


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
    with the clone. Reads git's index, where paths stand as they are; git is not run."""
    git = Path(root) / ".git"
    try:
        if git.is_file():
            git = Path(root, git.read_text(encoding="utf-8").removeprefix("gitdir:").strip())
        return path.encode() + b"\0" in (git / "index").read_bytes()
    except (OSError, UnicodeDecodeError):
        return False
