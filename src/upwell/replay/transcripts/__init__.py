"""Finds the transcripts on this machine, recognises their formats and reads them."""

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from upwell.episodes.events import SessionEvent
from upwell.ground.errors import UsageError
from upwell.ground.project import is_inside, real_folder, repository_of, tracks
from upwell.hosts import HOSTS
from upwell.replay.transcripts import base, claude, codex, copilot, gemini, opencode, specstory
from upwell.replay.transcripts.base import HEAD_BYTES, ReadTally, TranscriptFormat

FORMATS: tuple[TranscriptFormat, ...] = (
    base.NEUTRAL,
    copilot.FORMAT,
    codex.FORMAT,
    gemini.FORMAT,
    opencode.FORMAT,
    claude.FORMAT,
    specstory.FORMAT,
)
"""The formats in the order in which they are tried, strictest first."""
NAMES = tuple(sorted(format.name for format in FORMATS))
SPECSTORY = ".specstory/history"
"""SpecStory's folder, relative to a project and not to the user's home folder."""
MAX_HISTORIES = 5_000
_SUFFIXES = frozenset({".jsonl", ".json", ".md", ".db"})
_SKIPPED = frozenset({"node_modules", ".git", "__pycache__", "subagents", "tool-results"})


class Transcript(Struct, frozen=True):
    """A transcript file and its format."""

    path: Path
    format: TranscriptFormat

    def events(self, start: int = 0, tally: ReadTally | None = None) -> Iterator[SessionEvent]:
        """The events in the file, in chronological order, from the byte `start` on, which is 0
        unless the format `resumes`. `tally`, if given, counts what was read."""
        return self.format.read(self.path, start, tally or ReadTally())

    def stat(self) -> os.stat_result | None:
        """The size and times of the file; None if it is gone."""
        try:
            return self.path.stat()
        except OSError:
            return None


def format_named(name: str) -> TranscriptFormat:
    """The format named by `--host`.

    Raises:
        UsageError: there is no format of that name.
    """
    for format in FORMATS:
        if format.name == name:
            return format
    raise UsageError(f"{name!r:.40} is not a host", hint=f"one of {', '.join(NAMES)}")


def transcripts_at(paths: Sequence[Path], only: TranscriptFormat | None = None) -> list[Transcript]:
    """The transcripts at `paths`, which are files or folders.

    Raises:
        UsageError: a path does not exist, or a file is not a transcript.
    """
    transcripts: dict[Path, Transcript] = {}
    for path in paths:
        if path.is_dir():
            transcripts |= {transcript.path: transcript for transcript in _below(path, only)}
        elif path.exists():
            format = only or _format_of(path)
            if format is None:
                raise UsageError(
                    f"{path} is not a transcript of a known host",
                    hint=f"--host names its format: {', '.join(NAMES)}",
                )
            transcripts[path] = Transcript(path, format)
        else:
            raise UsageError(f"cannot replay {path}: it does not exist", hint="check the path")
    return list(transcripts.values())


def events_at_end(path: str, max_bytes: int) -> Iterator[SessionEvent]:
    """The events in the last `max_bytes` of a transcript. Empty if the file cannot be read or
    belongs to another user."""
    size = own_bytes(path)
    if not size:
        return
    try:
        (transcript,) = transcripts_at([Path(path)])
        if transcript.format.resumes:
            yield from transcript.events(max(0, size - max_bytes))
    except (UsageError, OSError):
        return


def own_bytes(path: str) -> int:
    """The size of a file; 0 unless it is a regular file that belongs to this user."""
    if not path.startswith("/"):
        return 0
    try:
        info = os.lstat(path)
    except (OSError, ValueError):
        return 0
    return info.st_size if stat.S_ISREG(info.st_mode) and info.st_uid == os.getuid() else 0


def transcripts_of_user(home: Path, cwd: Path, format: TranscriptFormat | None) -> list[Transcript]:
    """The hosts' transcripts in the user's home folder, and the SpecStory histories in `cwd` if
    they are the user's own. With `format`, only those in that format."""
    transcripts: list[Transcript] = []
    for candidate in [format] if format else FORMATS:
        if candidate is specstory.FORMAT:
            files = set() if is_repositorys(cwd) else _histories(cwd)
        else:
            patterns = HOSTS[candidate.name].transcripts if candidate.name in HOSTS else ()
            files = {path for pattern in patterns for path in home.glob(pattern)}
        transcripts += [Transcript(path, candidate) for path in sorted(files) if _is_session(path)]
    return transcripts


def is_repositorys(cwd: Path) -> bool:
    """Whether git tracks SpecStory histories in `cwd`. A clone contains them, so they tell what
    others did, or claim to have done, and nothing tells which of them are this user's."""
    folder = Path(real_folder(str(cwd)), SPECSTORY)
    if not folder.is_dir() or (root := repository_of(str(cwd))) is None:
        return False
    return tracks(root, f"{folder.relative_to(root).as_posix()}/")


def _histories(cwd: Path) -> set[Path]:
    """This user's files among the SpecStory histories in `cwd`. Links are not followed."""
    folder = cwd / SPECSTORY
    if real_folder(str(folder)) != os.path.join(real_folder(str(cwd)), SPECSTORY):
        return set()
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in islice(found, MAX_HISTORIES)]
    except OSError:
        return set()
    paths = {folder / name for name in names if name.endswith(".md")}
    return {path for path in paths if own_bytes(str(path.absolute()))}


def _below(folder: Path, only: TranscriptFormat | None) -> Iterator[Transcript]:
    for root, folders, files in folder.walk():
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        for name in sorted(files):
            path = root / name
            if path.suffix not in _SUFFIXES or not _is_session(path):
                continue
            if path.is_symlink() and not is_inside(path, str(folder)):
                continue
            recognised = _format_of(path)
            if recognised is not None and only in (None, recognised):
                yield Transcript(path, recognised)


def _is_session(path: Path) -> bool:
    """False for a subagent's transcript. Claude Code stores these beside the transcripts of
    sessions."""
    return path.is_file() and not path.name.startswith("agent-")


def _format_of(path: Path) -> TranscriptFormat | None:
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    return next((format for format in FORMATS if format.recognises(path, head)), None)
