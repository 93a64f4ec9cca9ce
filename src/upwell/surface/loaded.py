"""Finds instructions that an agent already has, because its host loads instruction files
(`CLAUDE.md`, `AGENTS.md` …) into every session.

Those files may be somebody else's: they came with the repository. So little of it is looked at, and
what is not looked at in time counts as not loaded. A file that only quotes, negates or withdraws an
instruction does not load it."""

import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice, takewhile
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from upwell.ground.project import project_of, real_folder
from upwell.ground.text.instructions import Instructions, prose_lines
from upwell.ground.walk import Walk, is_inside
from upwell.hosts import HOSTS
from upwell.hosts.base import AutoLoaded

MAX_FILES = 40
MAX_LOOKED_FOR = 200
"""The maximum number of distinct paths checked, whether or not a file exists there."""
MAX_BYTES = 200_000
"""The maximum number of bytes read from one file. Hosts warn about much smaller files."""
MAX_DEPTH = 5
"""Imports are followed over at most this many files, as Claude Code and Gemini CLI do."""
MAX_ENTRIES = 2_000
"""The maximum number of entries of folders looked at for the patterns."""
MAX_SECONDS = 0.1
"""Files that were not found and read within this time count as not loaded. The search has the rest
of the 300 ms that a call waits."""
_CUT = "\n(not read to its end)"
"""The end of a text that was cut. What comes next may withdraw the last paragraph."""
_BACKTICKS = re.compile(r"(`+)")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:[^\s\\@]|\\ )(?:[^\s\\]|\\ )*)")
_PUNCTUATION = ".,;:!?)]}\"'*_"
_LIMIT = re.compile(r"(?im)^(?:globs|paths|applyTo|alwaysApply)[ \t]*:")
_NO_LIMIT = re.compile(
    r"(?im)^(?:alwaysApply[ \t]*:[ \t]*true|applyTo[ \t]*:[ \t]*['\"]?\*\*['\"]?)[ \t]*$"
)


def loaded_by(
    host: str,
    cwd: str | None,
    texts: Iterable[str],
    always: Collection[str] = (),
    now: Callable[[], float] = monotonic,
) -> set[str]:
    """The `texts` that are instructions in the files that `host` loads for a session in `cwd`. For
    the texts in `always`, files for only some of the project's paths do not count. Empty for an
    unknown host. Reads files for at most about `MAX_SECONDS`, so call it in a thread."""
    if host not in HOSTS:
        return set()
    remaining = set(texts)
    loaded: set[str] = set()
    until = now() + MAX_SECONDS
    for path in _files(HOSTS[host].auto_loaded, cwd, lambda: now() > until):
        content = _content(path)
        instructions = Instructions(content)
        sought = remaining.difference(always) if _is_limited(content) else remaining
        loaded |= {text for text in sought if text in instructions}
        remaining -= loaded
        if not remaining:
            break
    return loaded


def _is_limited(content: str) -> bool:
    """True if a file's front matter says that it is loaded for some paths only."""
    front = content.partition("\n---")[0] if content.startswith("---") else ""
    return bool(_LIMIT.search(front)) and not _NO_LIMIT.search(front)


class _Loaded(NamedTuple):
    """A file that a host may load. Its imports must be below `root`, if there is one, and so must
    the file itself if it is the `project`'s. `depth` is the number of imports that lead to it."""

    path: Path
    root: str | None = None
    depth: int = 0
    is_projects: bool = False


def _files(auto_loaded: AutoLoaded, cwd: str | None, is_late: Callable[[], bool]) -> Iterator[Path]:
    named = takewhile(lambda _: not is_late(), _named(auto_loaded, cwd))
    pending, tried = deque(named), set[str]()
    found = 0
    while pending and found < MAX_FILES and len(tried) < MAX_LOOKED_FOR and not is_late():
        file = pending.popleft()
        place = os.path.normpath(file.path)
        if place in tried:
            continue
        tried.add(place)
        if not _is_file(file):
            continue
        found += 1
        yield file.path
        is_followed = auto_loaded.follows_imports and file.depth < MAX_DEPTH
        if is_followed and len(pending) < MAX_LOOKED_FOR:
            pending += islice(_imported(file), MAX_LOOKED_FOR)


def _is_file(file: _Loaded) -> bool:
    try:
        return file.path.is_file() and (not file.is_projects or is_inside(file.path, file.root))
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
    walk = Walk(root, MAX_ENTRIES)
    for folder in (place, *place.parents):
        if not folder.is_relative_to(root):
            return
        own = [path for name in auto_loaded.folder if (path := folder / name).exists()]
        for path in own or (folder / name for name in auto_loaded.fallback):
            yield _Loaded(path, root, is_projects=True)
        for pattern in auto_loaded.scoped:
            top, _, name = pattern.partition("/**/*")
            for path in walk.below(folder / top, name):
                yield _Loaded(path, root, is_projects=True)


def _imported(file: _Loaded) -> Iterator[_Loaded]:
    written = imports_in(_content(file.path))
    # The end of a sentence may follow a path, but may also belong to it.
    forms = (dict.fromkeys((path, path.rstrip(_PUNCTUATION))) for path in written)
    for name in chain.from_iterable(forms):
        # `Path.expanduser` would raise for `@~team`, which is a mention, not a home folder.
        path = file.path.parent / os.path.expanduser(name)
        if is_inside(path, file.root):
            yield _Loaded(path, file.root, file.depth + 1)


def imports_in(text: str) -> Iterator[str]:
    """The paths that a Markdown file imports (`See @docs/rules.md`), at the beginning of a line or
    after white space. Text in code is skipped."""
    for line in prose_lines(text):
        if "@" in line:
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
            raw = file.read(MAX_BYTES + 1)
    except OSError:
        return ""
    text = raw[:MAX_BYTES].decode("utf-8-sig", "replace")
    return text if len(raw) <= MAX_BYTES else text.rpartition("\n")[0] + _CUT
