"""Where upwell does nothing by itself: in the sessions of the pause file, which `upwell off` writes
and which is read before every tool call, and in the projects of `projects.exclude`."""

import fnmatch
import glob
import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from upwell.ground.errors import UsageError
from upwell.ground.files import exclusively, file_exists, write_atomically, writing
from upwell.ground.host_sessions import outermost
from upwell.ground.project import main_worktree_of, project_of
from upwell.ground.text.words import counted
from upwell.ground.types.rpc import Ping

EVERYBODY = "*"


class Pause:
    """The paused sessions, one per line in the file at `path`. A line with `*` pauses all
    sessions. `begin()` and `end()` raise UsageError if no session can have this name, and
    StoreError if the file cannot be locked or written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def holds(self, session: str) -> bool:
        """Return whether this session, or the outermost session that contains it, is paused."""
        paused = self._read()
        named = {session, outermost(session)} - {""}
        return EVERYBODY in paused or not paused.isdisjoint(named)

    def anybody(self) -> bool:
        """Return whether any session is paused."""
        return bool(self._read())

    def described(self) -> str:
        """Say what is paused, in a sentence without a full stop. Returns "" if nothing is."""
        paused = self._read()
        if not paused or EVERYBODY in paused:
            return "everything is paused" if paused else ""
        return f"{counted(len(paused), 'session')} {'is' if len(paused) == 1 else 'are'} paused"

    def begin(self, session: str | None) -> None:
        """Pause a session, or all sessions if `session` is None."""
        name = EVERYBODY if session is None else _checked(session)
        with exclusively(self._path):
            self._write(self._read() | {name})

    def end(self, session: str | None) -> None:
        """End a session's pause, or every pause if `session` is None."""
        name = EVERYBODY if session is None else _checked(session)
        with exclusively(self._path):
            self._write(set() if name == EVERYBODY else self._read() - {name})

    def ping(self) -> Ping:
        paused = self.described()
        return Ping(ok=True, detail=f"{paused}: `upwell on` resumes" if paused else "not paused")

    def _read(self) -> set[str]:
        if not file_exists(self._path):
            return set()
        try:
            return set(self._path.read_text(encoding="utf-8", errors="replace").split("\n")) - {""}
        except OSError:
            return set()

    def _write(self, paused: set[str]) -> None:
        with writing(self._path):
            if paused:
                # The write is atomic, because every tool call reads the file without the lock.
                write_atomically(self._path, "\n".join(sorted(paused)) + "\n")
            else:
                self._path.unlink(missing_ok=True)


def _checked(session: str) -> str:
    if not session.isprintable() or session in ("", EVERYBODY):
        raise UsageError(
            f"{session[:60]!a} is not a session", hint="omit --session to mean every session"
        )
    return session


MAX_GLOBBED = 1_000
"""At most this many of the folders that a pattern names are checked for being links."""
HEADLESS_FOLDER = "upwell-headless"
"""The name of the folder in which upwell runs an agent to ask its model a question
(`wire/headless.py`). It is always excluded, whichever home the folder is in, so that upwell never
learns from its own runs.
"""
_ALWAYS = (HEADLESS_FOLDER,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectOptions:
    """The `projects.*` settings.

    `exclude` contains patterns for folders. A pattern with a slash is compared with the whole path;
    a leading `~` is the user's home folder. Any other pattern is compared with the folder's name.
    Everything in a matching folder is excluded, and so are all worktrees of repositories in it.
    """

    exclude: tuple[str, ...] = ()

    def excludes(self, folder: str | None) -> bool:
        """Return whether a pattern excludes the folder. False if the folder is not known."""
        return bool(self.pattern_of(folder))

    def pattern_of(self, folder: str | None) -> str:
        """Return the first pattern that excludes the folder, or ""."""
        if not folder:
            return ""
        if f"/{HEADLESS_FOLDER}" in folder and (own := _match(folder, _ALWAYS)):
            return own
        if not self.exclude:
            return ""
        main_worktree = main_worktree_of(project_of(folder))
        by_repository = _match(main_worktree, self.exclude) if main_worktree else ""
        return _match(folder, self.exclude) or by_repository

    def check(self, folder: Path) -> None:
        """Check that the folder is not excluded.

        Raises:
            UsageError: the folder is excluded.
        """
        if pattern := self.pattern_of(str(folder.absolute())):
            raise UsageError(
                f"{folder} is in an excluded project",
                hint=f"projects.exclude has {pattern!r}; `upwell config show` shows its file",
            )


@lru_cache(maxsize=1_024)
def _match(folder: str, patterns: tuple[str, ...]) -> str:
    own = (Path(os.path.normpath(folder)), Path(os.path.realpath(folder)))
    places = {place for path in own for place in (path, *path.parents)}
    return next((pattern for pattern in patterns if _matches(places, pattern)), "")


def _matches(places: Collection[Path], pattern: str) -> bool:
    """Return whether the pattern matches one of the places, or a link that leads to one."""
    if "/" not in pattern and pattern != "~":
        return any(fnmatch.fnmatchcase(place.name, pattern) for place in places)
    whole = os.path.normpath(os.path.expanduser(pattern))
    if any(fnmatch.fnmatchcase(str(place), whole) for place in places):
        return True
    named = (whole, *islice(glob.iglob(whole), MAX_GLOBBED))
    return any(Path(os.path.realpath(path)) in places for path in named)
