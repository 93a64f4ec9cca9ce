"""Which project a folder belongs to."""

from functools import lru_cache
from pathlib import Path


def project_of(folder: str | None) -> str | None:
    """The absolute root of the repository that `folder` lies in, else `folder` itself.

    None stays None: no folder, every project.
    """
    return _root(str(Path(folder).expanduser().absolute())) if folder else None


def repository_of(folder: str) -> str | None:
    """The absolute root of the repository that `folder` lies in, None when it lies in none."""
    root = project_of(folder)
    return root if root is not None and (Path(root) / ".git").exists() else None


@lru_cache(maxsize=256)
def _root(folder: str) -> str:
    path = Path(folder)
    for candidate in (path, *path.parents):
        if (candidate / ".git").exists():
            return str(candidate)
    return folder
