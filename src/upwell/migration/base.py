"""The interface for programs that upwell can import memories from. A `Program` finds and reads its
stores. `migration/moving.py` decides what to do with the items.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.records import is_text, moment, namespace

MAX_PATHS = 50
_MILLISECONDS = 100_000_000_000
"""Larger numbers are times in milliseconds. In seconds, this number means the year 5138."""


class StorePlace(Struct, frozen=True):
    """What determines where programs store their files. `folder` is the working directory."""

    user_folder: Path
    environment: Mapping[str, str]
    folder: Path

    def folder_named(self, variable: str, usual: str) -> Path:
        """The folder that the environment variable names, or else `usual` in the home folder."""
        named = self.environment.get(variable, "")
        return Path(os.path.expanduser(named)) if named else self.user_folder / usual


class Record(Struct, frozen=True, kw_only=True):
    """A memory from another program. `project_name` is set if the program stores only the project's
    name and no path.
    """

    memory: Memory
    project_name: str = ""


class Setting(Struct, frozen=True):
    """A setting for upwell. `original` is its name in the other program."""

    key: tuple[str, ...]
    value: Any
    original: str = ""


class ImportedServer(Struct, frozen=True):
    """An MCP server for the gateway. `table` is the content of `[server.NAME]`."""

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)


class LeftOut(Struct, frozen=True):
    """Something that is not imported: why, and an example."""

    why: str
    example: str = ""
    count: int = 1


Item = Record | Setting | ImportedServer | LeftOut


def link_out(file: Path, folder: Path) -> LeftOut | None:
    """Leave out `file` if it is a link to a target outside `folder`, because nobody wrote that
    target as a memory. Returns None for any other file."""
    if file.resolve().is_relative_to(folder.resolve()):
        return None
    return LeftOut("a link out of the folder", str(file))


class Program(Protocol):
    """A program to import memories from."""

    @property
    def name(self) -> str:
        """The program's name for `--from`."""
        ...

    @property
    def usual(self) -> str:
        """For messages: where the program usually stores its memories."""
        ...

    def stores(self, place: StorePlace) -> list[Path]:
        """The program's stores on this machine."""
        ...

    def read(self, path: Path, place: StorePlace) -> Iterator[Item]:
        """Yield everything in a store.

        Raises:
            UsageError: the file is not a store of this program, or cannot be read.
        """
        ...


def record(
    program: str,
    record_id: str,
    text: str,
    *,
    kind: str = "",
    tags: Sequence[str] = (),
    paths: Sequence[str] = (),
    created_at: object = None,
    updated_at: object = None,
    project: str | None = None,
    project_name: str = "",
    session: str = "",
) -> Record:
    """Create a memory. Its provenance names the program and the session. Its `source` names the
    program and `record_id`. Its id in upwell is the same on every import. A `kind` that is not a
    valid namespace becomes a tag."""
    name, extra_tags = _namespace(kind)
    identity = json.dumps([program, record_id])
    memory = Memory(
        text=text.strip(),
        id="m" + hashlib.sha256(identity.encode()).hexdigest()[:19],
        namespace=name,
        tags=tuple(dict.fromkeys(tag for tag in (*tags, *extra_tags) if tag.strip())),
        paths=tuple(dict.fromkeys(path for path in paths if path.strip()))[:MAX_PATHS],
        project=project,
        source=f"{program}:{record_id}",
        provenance=Provenance(door="import", server=program, session=session),
        trust=Trust.IMPORTED,
        created_at=time_of(created_at),
        updated_at=time_of(updated_at),
    )
    return Record(memory=memory, project_name=project_name)


def _namespace(kind: str) -> tuple[str, tuple[str, ...]]:
    try:
        return namespace(kind), ()
    except UsageError:
        return namespace(""), (kind,)


def time_of(value: object) -> float | None:
    """Seconds since the epoch, from seconds, milliseconds or ISO 8601; None for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > _MILLISECONDS:
            value = value / 1000
        return moment(value)
    except (UsageError, OverflowError):
        return None


def texts(value: object) -> list[str]:
    """The strings in a list, in a JSON list, or in a comma-separated string."""
    if isinstance(value, str):
        stripped = value.strip()
        if stripped.startswith("["):
            try:
                return texts(json.loads(stripped))
            except (ValueError, RecursionError):
                pass
        return [part.strip() for part in stripped.split(",") if part.strip()]
    parts = value if isinstance(value, list) else []
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def string(value: object) -> str:
    """The value if it is text that can be stored, otherwise ""."""
    return value if isinstance(value, str) and is_text(value) else ""
