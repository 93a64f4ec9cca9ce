"""Finds texts that an agent already has, because its host loads instruction files (`CLAUDE.md`,
`AGENTS.md` …) into every session."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from upwell.ground.project import project_of, real_folder
from upwell.hosts import HOSTS
from upwell.hosts.base import AutoLoaded

MAX_FILES = 40
MAX_LOOKED_FOR = 200
"""The maximum number of distinct paths checked, whether or not a file exists there."""
MAX_BYTES = 200_000
"""The maximum number of bytes read from one file. Hosts warn about much smaller files."""


def loaded_by(host: str, cwd: str | None, texts: Iterable[str]) -> set[str]:
    """The `texts` that occur word for word in the files that `host` loads for a session in `cwd`.
    Empty for an unknown host. Reads files, so call it in a thread."""
    if host not in HOSTS:
        return set()
    remaining = {text: _words(text) for text in texts}
    loaded: set[str] = set()
    for path in _files(HOSTS[host].auto_loaded, cwd):
        content = _words(_content(path))
        loaded_texts = {text for text, words in remaining.items() if words in content}
        loaded |= loaded_texts
        remaining = {text: words for text, words in remaining.items() if text not in loaded_texts}
        if not remaining:
            break
    return loaded


def _files(auto_loaded: AutoLoaded, cwd: str | None) -> Iterator[Path]:
    pending, tried = deque(_named(auto_loaded, cwd)), set[str]()
    found = 0
    while pending and found < MAX_FILES and len(tried) < MAX_LOOKED_FOR:
        path = pending.popleft()
        place = os.path.normpath(path)
        if place in tried:
            continue
        tried.add(place)
        if not _is_file(path):
            continue
        found += 1
        yield path
        if auto_loaded.follows_imports and len(pending) < MAX_LOOKED_FOR:
            pending += islice(_imported(path), MAX_LOOKED_FOR)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _named(auto_loaded: AutoLoaded, cwd: str | None) -> Iterator[Path]:
    for pattern in auto_loaded.user:
        yield Path.home() / pattern
    root = project_of(cwd)
    if cwd is None or root is None:
        return
    place = Path(real_folder(cwd))
    folders = [folder for folder in (place, *place.parents) if folder.is_relative_to(root)]
    for folder in folders:
        own = [path for pattern in auto_loaded.folder for path in folder.glob(pattern)]
        yield from own or (folder / pattern for pattern in auto_loaded.fallback)
        for pattern in auto_loaded.scoped:
            yield from folder.glob(pattern)


def _imported(path: Path) -> Iterator[Path]:
    for line in _content(path).splitlines():
        name = line.strip().removeprefix("@")
        if name != line.strip() and name and " " not in name:
            # `Path.expanduser` would raise for `@~team`, which is a mention, not a home folder.
            yield path.parent / os.path.expanduser(name)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _words(text: str) -> str:
    """The text on one line, in lower case, without list markers and full stops at either end."""
    return " ".join(text.split()).strip("-*• .").casefold()
