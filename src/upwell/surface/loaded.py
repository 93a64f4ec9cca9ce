"""Finds texts that an agent already has, because its host loads instruction files (`CLAUDE.md`,
`AGENTS.md` …) into every session."""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from upwell.ground.project import is_below, project_of, real_folder
from upwell.hosts import HOSTS
from upwell.hosts.base import AutoLoaded

MAX_FILES = 40
MAX_LOOKED_FOR = 200
"""The maximum number of distinct paths checked, whether or not a file exists there."""
MAX_BYTES = 200_000
"""The maximum number of bytes read from one file. Hosts warn about much smaller files."""
MAX_DEPTH = 5
"""Imports are followed over at most this many files, as Claude Code and Gemini CLI do."""
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])\s")
_BACKTICKS = re.compile(r"(`+)")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\@]|\\ )(?:[^\s\\]|\\ )*)")
_PUNCTUATION = ".,;:!?)]}\"'*_"


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


class _Loaded(NamedTuple):
    """A file that a host may load. Its imports must be below `root`, if there is one. `depth` is
    the number of imports that lead to it."""

    path: Path
    root: str | None = None
    depth: int = 0


def _files(auto_loaded: AutoLoaded, cwd: str | None) -> Iterator[Path]:
    pending, tried = deque(_named(auto_loaded, cwd)), set[str]()
    found = 0
    while pending and found < MAX_FILES and len(tried) < MAX_LOOKED_FOR:
        file = pending.popleft()
        place = os.path.normpath(file.path)
        if place in tried:
            continue
        tried.add(place)
        if not _is_file(file.path):
            continue
        found += 1
        yield file.path
        is_followed = auto_loaded.follows_imports and file.depth < MAX_DEPTH
        if is_followed and len(pending) < MAX_LOOKED_FOR:
            pending += islice(_imported(file), MAX_LOOKED_FOR)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long
        return False


def _named(auto_loaded: AutoLoaded, cwd: str | None) -> Iterator[_Loaded]:
    for pattern in auto_loaded.user:
        path = Path.home() / pattern
        yield _Loaded(path, None if auto_loaded.user_imports_anywhere else str(path.parent))
    root = project_of(cwd)
    if cwd is None or root is None:
        return
    place = Path(real_folder(cwd))
    folders = [folder for folder in (place, *place.parents) if folder.is_relative_to(root)]
    for folder in folders:
        own = [path for pattern in auto_loaded.folder for path in folder.glob(pattern)]
        for path in own or (folder / pattern for pattern in auto_loaded.fallback):
            yield _Loaded(path, root)
        for pattern in auto_loaded.scoped:
            yield from (_Loaded(path, root) for path in folder.glob(pattern))


def _imported(file: _Loaded) -> Iterator[_Loaded]:
    written = imports_in(_content(file.path))
    # The end of a sentence may follow a path, but may also belong to it.
    forms = (dict.fromkeys((path, path.rstrip(_PUNCTUATION))) for path in written)
    for name in chain.from_iterable(forms):
        # `Path.expanduser` would raise for `@~team`, which is a mention, not a home folder.
        path = file.path.parent / os.path.expanduser(name)
        if file.root is None or is_below(real_folder(str(path)), real_folder(file.root)):
            yield _Loaded(path, file.root, file.depth + 1)


def imports_in(text: str) -> Iterator[str]:
    """The paths that a Markdown file imports (`See @docs/rules.md`), at the beginning of a line or
    after white space. Text in code is skipped."""
    fence, is_code, in_list = "", False, False
    was_blank = True
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            is_end = mark and mark[1].startswith(fence) and not line[mark.end() :].strip()
            fence = "" if is_end else fence
            continue
        if mark:
            fence = mark[1]
            continue
        is_indented = line.startswith(("    ", "\t"))
        is_code = is_indented and (is_code or (was_blank and not in_list))
        if line.strip() and not is_indented:
            in_list = bool(_ITEM.match(line)) or (in_list and line[0] == " ")
        was_blank = not line.strip()
        if "@" in line and not is_code:
            yield from (match[1].replace("\\ ", " ") for match in _IMPORT.finditer(_prose(line)))


def _prose(line: str) -> str:
    """The line without its code spans. A span ends with as many backticks as it begins with."""
    parts = _BACKTICKS.split(line)
    last = {ticks: place for place, ticks in enumerate(parts) if place % 2}
    prose, place = [parts[0]], 1
    while place < len(parts):
        if last[parts[place]] > place:
            place = parts.index(parts[place], place + 1)
        prose += ["`", parts[place + 1]]
        place += 2
    return "".join(prose)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""


def _words(text: str) -> str:
    """The text on one line, in lower case, without list markers and full stops at either end."""
    return " ".join(text.split()).strip("-*• .").casefold()
