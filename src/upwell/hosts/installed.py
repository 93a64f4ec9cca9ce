"""The record of the files that contain our entries: `hooks.json`, or `clients.json` for MCP
servers. It is written before the file that it describes, so that a file that upwell has changed is
always on record, even after a crash.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.files import write_atomically, writing


class Installed(Struct, frozen=True, omit_defaults=True):
    """A file with our entries.

    - `written` is the digest of what upwell wrote. `previous` is the digest of what it wrote before
      that, which is still in the file if upwell was interrupted.
    - `backup` is the path of the copy of the earlier content, or "" if there was no file. `before`
      is the digest of that content. `older` are backups from earlier installations.
    - `moved` are the servers that moved to upwell, as texts in the file's format, the latest first.
      Records of older versions have neither `before` nor `moved`; there, it is None.
    - `folders` are the folders that the installation created, innermost first.
    - `elsewhere` are the agent's other files.
    """

    path: str
    written: str = ""
    previous: str = ""
    backup: str = ""
    before: str = ""
    older: tuple[str, ...] = ()
    moved: tuple[str, ...] | None = None
    folders: tuple[str, ...] = ()
    elsewhere: "tuple[Installed, ...]" = ()

    def wrote(self, digest: str) -> bool:
        """True if upwell wrote the content with this digest."""
        return digest in (self.written, self.previous)


Record = Mapping[str, Installed]
"""The first file of each agent, keyed by agent."""


def read_record(path: Path) -> tuple[Record, str]:
    """The record, and what is wrong with its file, or "". A damaged record is empty."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Installed]), ""
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}"
    except msgspec.MsgspecError as error:
        return {}, f"{path} is damaged: {error}"


def installed_entries(path: Path) -> Record:
    """The record; empty if it cannot be read."""
    return read_record(path)[0]


def write_record(path: Path, record: Record) -> None:
    """Replace the record. A damaged file is kept as `NAME.corrupt-TIME`.

    Raises:
        StoreUnwritable: the file cannot be written.
    """
    with writing(path):
        if read_record(path)[1]:
            path.replace(path.with_name(f"{path.name}.corrupt-{time.time_ns() // 1_000_000}"))
        write_atomically(path, msgspec.json.format(msgspec.json.encode(record)))


def files_of(record: Record, agent: str) -> list[Installed]:
    """The agent's files. There are several if it has several settings folders."""
    first = record.get(agent)
    return [replace(first, elsewhere=()), *first.elsewhere] if first else []


def split(record: Record, agent: str, path: Path) -> tuple[Installed | None, list[Installed]]:
    """The agent's file at `path`, or None if it is not on record, and the agent's other files."""
    files = files_of(record, agent)
    here = next((file for file in files if file.path == str(path)), None)
    return here, [file for file in files if file is not here]


def joined(record: Record, agent: str, files: Sequence[Installed]) -> Record:
    """The record with these files for the agent."""
    others = {name: file for name, file in record.items() if name != agent}
    if not files:
        return others
    return {**others, agent: replace(files[0], elsewhere=tuple(files[1:]))}
