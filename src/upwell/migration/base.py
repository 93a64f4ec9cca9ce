"""The contract for programs from which upwell can import memories. A `Program` reads the stores of
one program and yields items. `migration/moving.py` decides what to do with them.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory, Provenance, Trust
from upwell.memory.notes.stm import Entry
from upwell.memory.records import is_text, moment, namespace

MAX_PATHS = 50
_MILLISECONDS = 100_000_000_000
"""A time above this is in milliseconds: in seconds it would be in the year 5138."""
_PROJECTS = ("project", "project_path", "repository", "repo", "cwd")
"""The keys of metadata that may give a project."""


@dataclass(frozen=True, slots=True)
class Place:
    """What decides where programs store their files: the home folder of the user, the environment,
    and the working directory."""

    user_folder: Path
    environment: Mapping[str, str]
    folder: Path

    def folder_named(self, variable: str, usual: str) -> Path:
        """The folder given by an environment variable, else `usual` in the home folder."""
        named = self.environment.get(variable, "")
        return Path(os.path.expanduser(named)) if named else self.user_folder / usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A memory of another program. `project_name` is the name of its project if the program stores
    only a name and no path.
    """

    memory: Memory
    project_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note for `stm.json`. `project` is the absolute root of its project, None for every
    project."""

    entry: Entry
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of upwell: the parts of its key, its value, and its name in the other program."""

    key: tuple[str, ...]
    value: Any
    original: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """An MCP server for the gateway. `table` is the content of `[server.NAME]`."""

    name: str
    table: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that is not imported: the reason, and an example of it."""

    why: str
    example: str = ""
    count: int = 1


Item = Record | Note | Setting | Server | LeftOut


def link_out(file: Path, folder: Path) -> LeftOut | None:
    """Leave out `file` if it is a link that leads out of `folder`: nobody wrote its target as a
    memory. Returns None for any other file."""
    if file.resolve().is_relative_to(folder.resolve()):
        return None
    return LeftOut("a link out of the folder", str(file))


class Program(Protocol):
    """A program whose memories can be imported."""

    @property
    def name(self) -> str:
        """The program's name for `--from`."""
        ...

    @property
    def usual(self) -> str:
        """Where the program usually stores its memories, for messages."""
        ...

    def stores(self, place: Place) -> list[Path]:
        """The program's stores on this machine."""
        ...

    def read(self, path: Path, place: Place) -> Iterator[Item]:
        """Everything in a store.

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
    """A memory with its provenance: the program that it comes from, and its id and timestamps in
    that program. Its id in upwell is the same at every import. A kind that is not a valid namespace
    becomes a tag."""
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


def standing_rule(rule: Record, scope: Sequence[str] = ()) -> Record:
    """The same memory as a standing rule. Without a scope, the rule is shown at the start of every
    session."""
    return replace(rule, memory=replace(rule.memory, pinned=True, triggers=tuple(scope)))


def _namespace(kind: str) -> tuple[str, tuple[str, ...]]:
    try:
        return namespace(kind), ()
    except UsageError:
        return namespace(""), (kind,)


def time_of(value: object) -> float | None:
    """Epoch seconds from seconds, milliseconds or ISO 8601; None for anything else."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and value > _MILLISECONDS:
            value = value / 1000
        return moment(value)
    except (UsageError, OverflowError):
        return None


def texts(value: object) -> list[str]:
    """The strings in a list, in a list encoded as JSON, or in a comma-separated string."""
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
    """A text that can be stored; "" for anything else."""
    return value if isinstance(value, str) and is_text(value) else ""


def metadata_of(value: object) -> Mapping[str, Any]:
    """The metadata of a memory: a mapping, or the JSON object in a text; else empty."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def project_in(metadata: Mapping[str, Any]) -> tuple[str | None, str]:
    """The folder of the project and "", or None and the name of the project. If the metadata gives
    no project, the name is ""."""
    stated = [string(metadata.get(name)) for name in _PROJECTS]
    for value in filter(None, stated):
        return (value, "") if value.startswith("/") else (None, value)
    return None, ""
