"""Sources: imported files and folders, which upwell reads in place.

The index of their contents can be rebuilt from their list, but the list cannot be rebuilt.
"""

import os
import sqlite3
from collections.abc import Hashable
from enum import StrEnum
from pathlib import Path
from typing import NoReturn, Protocol

from msgspec import Struct

from upwell.ground.errors import StoreError, UsageError
from upwell.ground.files import Stamp, stamp
from upwell.ground.project import repository_of
from upwell.ground.sqlite.database import Database, Owner
from upwell.memory.records import is_text


class Form(StrEnum):
    """The format of a source's files."""

    MARKDOWN = "markdown"
    STM = "stm"


class Source(Struct, frozen=True):
    """An imported file or folder. `path` is absolute, with symbolic links resolved.

    `cited` is the name of the source in citations. It is the path relative to the folder in which
    the import command ran ("" for that folder itself), or the whole path if the source is outside
    that folder. If `project` is None, every project sees the source.
    """

    path: str
    cited: str
    project: str | None = None
    form: Form = Form.MARKDOWN

    @property
    def key(self) -> str:
        """The properties that affect the source's memories. If the key changes, the source is read
        again."""
        return "\n".join((self.path, self.cited, self.project or "", self.form))

    def holds(self, path: str) -> bool:
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")

    def citation(self, path: str) -> str:
        """The name that citations use for a file in this source."""
        relative = path[len(self.path) :].lstrip("/")
        return "/".join(filter(None, (self.cited, relative)))


def source_at(path: Path, folder: Path) -> Source:
    """The source at `path`, imported by a command that runs in `folder`. Raises UsageError if there
    is no file or folder at this path, or its name is not plain text."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"cannot import {path}: no such file or folder", hint="check the path"
        ) from error
    if not (real.is_dir() or real.is_file()):
        raise UsageError(
            f"cannot import {path}: it is neither a file nor a folder", hint="check the path"
        )
    if "\n" in str(real) or not is_text(str(real)):
        raise UsageError(
            f"cannot import {str(path)!a}: its name is not plain text", hint="rename it"
        )
    absolute = Path(os.path.abspath(path))
    is_inside = absolute.is_relative_to(folder)
    cited = str(absolute.relative_to(folder)) if is_inside else str(absolute)
    project = repository_of(str(real if real.is_dir() else real.parent))
    return Source(str(real), "" if cited == "." else cited, project)


class Sources(Protocol):
    """The list of sources. Each path occurs at most once."""

    async def all(self) -> list[Source]:
        """Every source, in the order of import. Raises StoreError if the list cannot be read."""
        ...

    def stamp(self) -> Hashable:
        """A token that changes whenever the list may have changed. It needs no query, so upwell can
        check it on every event."""
        ...

    async def add(self, source: Source) -> None:
        """Add a source, or replace the source with the same path. Raises StoreError if it was not
        stored."""
        ...

    async def remove(self, path: str) -> bool:
        """Remove a source. Returns False if the list does not contain it."""
        ...


class NoSources:
    """Stands in for `Sources` if the store cannot be opened. The list is empty and rejects
    changes."""

    async def all(self) -> list[Source]:
        return []

    def stamp(self) -> Hashable:
        return ()

    async def add(self, source: Source) -> None:
        self._refuse()

    async def remove(self, path: str) -> bool:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError("memory.db cannot be used", hint="run `upwell doctor`")


class SqliteSources:
    """`Sources` in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Source]:
        rows = await self._database.read(
            lambda db: db.execute("SELECT path, cited, project FROM source ORDER BY no").fetchall()
        )
        return [
            Source(path, cited, project or None)
            for path, cited, project in rows
            if all(isinstance(value, str) for value in (path, cited, project))
        ]

    def stamp(self) -> tuple[Stamp | None, ...]:
        path = str(self._database.path)
        return stamp(path), stamp(f"{path}-wal")

    async def add(self, source: Source) -> None:
        await self._database.write(
            lambda db: db.execute(
                "INSERT INTO source (path, cited, project) VALUES (?, ?, ?) ON CONFLICT (path) "
                "DO UPDATE SET cited = excluded.cited, project = excluded.project",
                (source.path, source.cited, source.project or ""),
            )
        )

    async def remove(self, path: str) -> bool:
        return await self._database.write(
            lambda db: db.execute("DELETE FROM source WHERE path = ?", (path,)).rowcount > 0
        )


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE source (no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, "
        "cited TEXT NOT NULL, project TEXT NOT NULL)"
    )


OWNER = Owner("sources", [_create])
