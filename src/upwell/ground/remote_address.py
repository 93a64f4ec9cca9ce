"""Identifies a repository across its folders: all clones share the address of its remote, and all
worktrees share its main worktree.

This module reads git's files (git-config(1), gitrepository-layout(5)) without running git.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
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
    return _chosen(dict(reversed(remotes)))


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


def _chosen(addresses: Mapping[str, str]) -> str | None:
    if "origin" in addresses:
        return normal_address(addresses["origin"])
    if len(addresses) == 1:
        return normal_address(next(iter(addresses.values())))
    return None


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
