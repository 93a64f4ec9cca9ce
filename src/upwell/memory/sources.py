"""What the user imported: files and folders that are read where they stand.

They are precious, unlike what is derived from them, so they stand in `memory.db`.
"""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from upwell.ground.db import Database, Owner
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.files import Stamp, stamp
from upwell.ground.project import repository_of
from upwell.memory.rows import is_text


class Form(StrEnum):
    """What a source holds."""

    MARKDOWN = "markdown"
    STM = "stm"


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder, absolute and without links. `cited` is how it is named in citations: its
    path from the folder of the command ("" for that folder itself), or all of it where it lies
    elsewhere. `project` None: everywhere."""

    path: str
    cited: str
    project: str | None = None
    form: Form = Form.MARKDOWN

    @property
    def key(self) -> str:
        """What is derived from a source must be made anew when this changes."""
        return "\n".join((self.path, self.cited, self.project or "", self.form))

    def holds(self, path: str) -> bool:
        """Does this path lie in it?"""
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")

    def citation(self, path: str) -> str:
        """How a file of this source is cited."""
        inside = path[len(self.path) :].lstrip("/")
        return "/".join(filter(None, (self.cited, inside)))


def source_at(path: Path, folder: Path) -> Source:
    """The source that `path` is for a command given in `folder`.

    Raises:
        UsageError: there is nothing, or no file or folder.
    """
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"cannot import {path}: nothing is there", hint="check the path"
        ) from error
    if not (real.is_dir() or real.is_file()):
        raise UsageError(f"cannot import {path}: it is no file and no folder")
    if "\n" in str(real) or not is_text(str(real)):
        raise UsageError(f"cannot import {str(path)!a}: its name is not plain text")
    named = Path(os.path.abspath(path))
    inside = named.is_relative_to(folder)
    cited = str(named.relative_to(folder)) if inside else str(named)
    project = repository_of(str(real if real.is_dir() else real.parent))
    return Source(str(real), "" if cited == "." else cited, project)


class Sources:
    """The list of them. A path stands in it once. Without a database it is empty for good."""

    def __init__(self, database: Database | None) -> None:
        self._database = database

    async def all(self) -> list[Source]:
        """In the order in which they were imported.

        Raises:
            StoreError: the list cannot be read.
        """
        if self._database is None:
            return []
        rows = await self._database.read(
            lambda db: db.execute("SELECT path, cited, project FROM source ORDER BY no").fetchall()
        )
        return [Source(path, cited, project or None) for path, cited, project in rows]

    def stamp(self) -> tuple[Stamp | None, ...]:
        """Differs from last time when somebody may have changed the list: two looks at files, no
        question to the database."""
        if self._database is None:
            return ()
        path = str(self._database.path)
        return stamp(path), stamp(f"{path}-wal")

    async def add(self, source: Source) -> None:
        """Put it on the list, in place of what had its path.

        Raises:
            StoreError: it was not kept.
        """
        await self._write(
            lambda db: db.execute(
                "INSERT INTO source (path, cited, project) VALUES (?, ?, ?) ON CONFLICT (path) "
                "DO UPDATE SET cited = excluded.cited, project = excluded.project",
                (source.path, source.cited, source.project or ""),
            )
        )

    async def remove(self, path: str) -> bool:
        """Take it off the list. False when it is not on it."""
        return await self._write(
            lambda db: db.execute("DELETE FROM source WHERE path = ?", (path,)).rowcount > 0
        )

    async def _write[T](self, change: Callable[[sqlite3.Connection], T]) -> T:
        if self._database is None:
            raise StoreError("memory.db cannot be used", hint="run `upwell doctor`")
        return await self._database.write(change)


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE source (no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, "
        "cited TEXT NOT NULL, project TEXT NOT NULL)"
    )


OWNER = Owner("sources", [_create])
