"""Look for files in a folder that somebody else may have filled, as a repository is."""

import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from upwell.ground.project import is_below, real_folder

MAX_DEPTH = 8


class Walk:
    """Finds files below the folder `root`. It looks at no more than `max_entries` entries in all,
    and at most `MAX_DEPTH` levels of folders below each starting point, and lists no folder outside
    `root`."""

    def __init__(self, root: str, max_entries: int) -> None:
        self._root = root
        self._left = max_entries

    def below(self, top: Path, suffix: str) -> Iterator[Path]:
        """The entries in `top` and its folders whose names end with `suffix`, nearest first, except
        folders. Links to folders are not followed, unless `top` is one that stays in the root. An
        entry may be a link or a pipe. What cannot be read is left out."""
        if not is_inside(top, self._root):
            return
        pending = deque([(str(top), 0)])
        while pending and self._left > 0:
            folder, depth = pending.popleft()
            for entry in self._entries(folder):
                if entry.is_dir(follow_symlinks=False):
                    if depth < MAX_DEPTH:
                        pending.append((entry.path, depth + 1))
                elif entry.name.endswith(suffix):
                    yield Path(entry.path)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(islice(found, self._left), key=lambda entry: entry.name)
        except (OSError, ValueError):
            entries = []
        self._left -= len(entries) + 1
        return entries


def is_inside(path: Path, root: str | None) -> bool:
    """Return whether `path` is below `root` when links are resolved. Everything is inside None."""
    return root is None or is_below(real_folder(str(path)), real_folder(root))
