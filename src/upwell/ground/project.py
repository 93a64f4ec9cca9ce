"""Projects: the repository that a folder belongs to, and what a project may see.

A folder has one project, however it is reached: links are resolved, as git and the shell do. A
workspace that is opened through a link therefore has the memories and rules of the real folder. So
has one whose path is typed in another case, on macOS. All clones of a repository share the address
of its remote, and all worktrees its main worktree.

Git's files (git-config(1), gitrepository-layout(5)) are read without running git, and the files in
a folder within limits, because somebody else may have filled it.
"""

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from upwell.ground.files import Stamp, stamp

MAX_CONFIG_BYTES = 1_000_000
MAX_ADDRESS_CHARS = 500
_PORTS = {"ssh": 22, "git+ssh": 22, "ssh+git": 22, "https": 443, "http": 80, "git": 9418}
"""The URL schemes that lead to the same repository from every machine, with their default ports."""
_SCP = re.compile(r"(?:[^@/:]*+@)?(?P<host>\[[^\]/]++\]|[^:/\[]++):(?P<path>[^:].*+)", re.DOTALL)
"""`user@host:path`, as in git-clone(1). There is no slash before the first colon."""
_REMOTE = re.compile(r'\[remote "((?:[^"\\]|\\.)*+)"\]', re.IGNORECASE)
_URL = re.compile(r"url\s*+=\s*+(.*+)", re.IGNORECASE)


def address_of(folder: str | None) -> str | None:
    """Return the normal form of the remote address of the repository at `folder`, such as
    `github.com/acme/shop`. Returns None if `folder` is not the root of a repository, or if its
    remote cannot be reached from other machines.

    The remote is `origin`. If there is only one remote, its name does not matter.
    """
    if not folder or folder[0] != "/" or "\0" in folder:
        return None
    path = f"{folder}/.git/config"
    written = stamp(path)
    if written is None:
        # In a worktree or submodule, `.git` is a file that contains the path of the git folder.
        common = _linked(folder, stamp(f"{folder}/.git")).common
        path = os.path.join(common, "config")
        written = stamp(path) if common else None
    return _address_in(path, written) if written else None


def main_worktree_of(folder: str | None) -> str | None:
    """If `folder` is the root of a linked worktree (git-worktree(1)), return the root of the
    main worktree, or the repository's own folder if the repository is bare. Otherwise, return None.
    """
    if not folder or folder[0] != "/" or "\0" in folder:
        return None
    return _linked(folder, stamp(f"{folder}/.git")).main_worktree or None


class _Linked(NamedTuple):
    """What a `.git` file points to. `common` is the git folder that all worktrees of the repository
    share. `main_worktree` is "" if the file is not in a linked worktree."""

    common: str = ""
    main_worktree: str = ""


@lru_cache(maxsize=256)
def _linked(folder: str, written: Stamp | None) -> _Linked:
    if written is None:
        return _Linked()
    try:
        pointer = _beginning(Path(folder, ".git"))
        if not pointer.startswith("gitdir:") or "\0" in pointer:
            return _Linked()
        own = Path(folder, pointer.removeprefix("gitdir:").strip())
        if not (own / "commondir").is_file():
            return _Linked(os.path.realpath(own))
        common = os.path.realpath(own / _beginning(own / "commondir").strip())
        is_known = _is_worktree_of(common, own, folder)
        return _Linked(common, common.removesuffix("/.git") if is_known else "")
    except (OSError, ValueError):
        return _Linked()


def _is_worktree_of(common: str, own: Path, folder: str) -> bool:
    """Return whether a repository lists `folder` among its worktrees. Without this check, a `.git`
    file in a downloaded folder could claim another repository's memories."""
    if os.path.realpath(own.parent) != os.path.realpath(os.path.join(common, "worktrees")):
        return False
    listed = _beginning(own / "gitdir").strip()
    return bool(listed) and os.path.realpath(own / listed) == os.path.realpath(f"{folder}/.git")


@lru_cache(maxsize=256)
def _address_in(path: str, written: Stamp) -> str | None:
    """`written`, the file's stamp, is part of the cache key, so that a changed file is read
    again."""
    try:
        remotes = list(_remotes(_beginning(Path(path))))
    except (OSError, ValueError):
        return None
    # Git uses the first address of each remote, but a dict keeps the last one.
    addresses = dict(reversed(remotes))
    if len(addresses) == 1:
        return normal_address(*addresses.values())
    return normal_address(addresses["origin"]) if "origin" in addresses else None


def _beginning(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(MAX_CONFIG_BYTES)


def _remotes(config: str) -> Iterator[tuple[str, str]]:
    """A remote with several addresses is yielded once for each."""
    remote = None
    for line in map(str.strip, config.splitlines()):
        if line.startswith("["):
            section = _REMOTE.fullmatch(line.partition("#")[0].strip())
            remote = section[1] if section else None
        elif remote is not None and (value := _URL.fullmatch(line)):
            yield remote, value[1].strip().strip('"')


def normal_address(url: str) -> str | None:
    """Return `host/path` for the address of a repository on a server. Returns None for a local
    path, an unknown scheme or a malformed address.

    The host is in lower case. Credentials, the scheme's default port, the query and a trailing
    `.git` are left out. No secret is therefore stored, and `git@host:a/b.git` equals
    `https://host/a/b`.
    """
    try:
        host, path = _parts(url)
    except ValueError:
        return None
    names = [part for part in path.split("/") if part not in ("", ".")]
    if not host or not names or ".." in names:
        return None
    names[-1] = names[-1].removesuffix(".git") or names[-1]
    address = "/".join((host.lower().rstrip("."), *names))
    if len(address) > MAX_ADDRESS_CHARS or not address.isprintable():
        return None
    return address


def _parts(url: str) -> tuple[str, str]:
    """Return the host and the path of an address. The host is "" for a local path or an unknown
    scheme.

    Raises:
        ValueError: the address is malformed.
    """
    if "://" in url:
        split = urlsplit(url)
        host = split.hostname or ""
        if split.scheme.lower() not in _PORTS or not host:
            return "", ""
        if split.port not in (None, _PORTS[split.scheme.lower()]):
            host = f"{host}:{split.port}"
        return host, unquote(split.path)
    form = _SCP.fullmatch(url)
    # A single letter before the colon is a Windows drive.
    if form is None or len(form["host"]) == 1:
        return "", ""
    return form["host"].strip("[]"), form["path"]


MAX_PATH_BYTES = 4_096
MAX_LINK_DEPTH = 40
"""A link into a project is looked for in at most this many of a path's first parts."""
FOLDS_CASE = sys.platform == "darwin"
"""Whether file systems usually take names that differ in case for the same."""


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


MAX_INDEX_BYTES = 64_000_000
MAX_ENTRIES = 500_000
MAX_PATHS_BYTES = 200_000_000
MAX_SHARED = 8
MAX_POINTER_CHARS = 65_536
"""Limits on git's files, far above what ordinary repositories need."""
_COMPRESSED = 4
_HEADER, _FIXED = 12, 62
_EXTENDED = 0x4000
"""The layout of git's index. Since version `_COMPRESSED`, paths are compressed. The header has
`_HEADER` bytes. Each entry has `_FIXED` bytes before its path, or two more if the flag `_EXTENDED`
is set."""


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
