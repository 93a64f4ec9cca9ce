"""What the folder and the store last agreed on, in a file of upwell's home."""

import os
from pathlib import Path

import msgspec
from msgspec import Struct, field

from upwell.ground.files import write_atomically, writing
from upwell.ground.project import is_below
from upwell.memory.documents.scan import FoundFile, KnownFile
from upwell.memory.sources import Source

MARK = ".upwell-folder"
"""A file that shows that the folder is there: when a disk is not mounted, no file was deleted."""
MAX_LINES = 100
MAX_NAME_BYTES = 80


class Entry(Struct, kw_only=True):
    """A file, and the `version` of its memory: the time of its last change. `problem` is the reason
    why the file cannot be used as it is; until it changes, neither side is touched. `taken` is the
    digest of the memory that was last taken from the file; a killed round may have stored it."""

    id: str = ""
    version: float = 0.0
    size: int = 0
    mtime_ns: int = 0
    hash: str = ""
    problem: str = ""
    taken: str = ""


class State(Struct):
    """The folder, its files by relative path, the project of each subfolder that upwell made, and
    the lines that no person has read yet. `failures` are the reasons why files could not be
    written."""

    folder: str
    files: dict[str, Entry] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Source:
        return Source(self.folder, "")

    def known(self) -> dict[str, KnownFile]:
        """The files as the scan expects them."""
        key = self.source.key
        return {
            self.path(name): KnownFile(entry.size, entry.mtime_ns, entry.hash, key)
            for name, entry in self.files.items()
        }

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def project_of(self, name: str) -> str | None:
        """The project of a new file."""
        return self.projects.get(os.path.dirname(name))

    def subfolder(self, project: str | None) -> str:
        """The subfolder of a project, which differs from all others even if case is ignored; "" for
        memories of every project."""
        if project is None:
            return ""
        for name, owner in self.projects.items():
            if owner == project:
                return name
        bare = os.path.basename(project.rstrip("/")).removesuffix(".git").lstrip(".") or "project"
        bare = bare.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        taken = {name.casefold() for name in self.projects}
        name, number = bare, 2
        while name.casefold() in taken:
            name, number = f"{bare}-{number}", number + 1
        self.projects[name] = project
        return name

    def is_as_seen(self, name: str) -> bool:
        """Whether the file is as it was when this entry was made, and in the folder itself."""
        entry, path = self.files[name], self.path(name)
        try:
            info = os.lstat(path)
        except OSError:
            return False
        return (info.st_size, info.st_mtime_ns) == (entry.size, entry.mtime_ns) and (
            is_below(os.path.realpath(path), self.folder)
        )

    def see(self, found: FoundFile, name: str) -> Entry:
        """The entry of a file, with its present size and time."""
        entry = self.files.setdefault(name, Entry())
        entry.size, entry.mtime_ns = found.size, found.mtime_ns
        return entry

    def say(self, line: str) -> None:
        """Keep a line for the next command of a person."""
        if line not in self.lines:
            self.lines = [*self.lines, line][-MAX_LINES:]


def load(path: Path) -> State | None:
    """The state in this file; None if there is none, or if it is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        return None


def save(path: Path, state: State) -> None:
    """Replace the state in this file. Raises StoreUnwritable."""
    with writing(path):
        write_atomically(path, msgspec.json.encode(state))
