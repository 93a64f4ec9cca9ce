"""Store the list of sources in `memory.db`. The index of their contents can be rebuilt from this
list, but the list itself cannot be rebuilt."""

import sqlite3

from upwell.ground.files import Stamp, stamp
from upwell.ground.sqlite.database import Database, Owner
from upwell.memory.sources import Source


class SqliteSources:
    """`Sources` in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Source]:
        """Return every source, in the order of import."""
        rows = await self._database.read(
            lambda db: db.execute("SELECT path, cited, project FROM source ORDER BY no").fetchall()
        )
        return [
            Source(path, cited, project or None)
            for path, cited, project in rows
            if all(isinstance(value, str) for value in (path, cited, project))
        ]

    def stamp(self) -> tuple[Stamp | None, ...]:
        """Return the file stamps of the database and of its write-ahead log."""
        path = str(self._database.path)
        return stamp(path), stamp(f"{path}-wal")

    async def add(self, source: Source) -> None:
        """Add a source to the list. It replaces an earlier source with the same path."""
        await self._database.write(
            lambda db: db.execute(
                "INSERT INTO source (path, cited, project) VALUES (?, ?, ?) ON CONFLICT (path) "
                "DO UPDATE SET cited = excluded.cited, project = excluded.project",
                (source.path, source.cited, source.project or ""),
            )
        )

    async def remove(self, path: str) -> bool:
        """Remove a source from the list. Returns False if the list does not contain it."""
        return await self._database.write(
            lambda db: db.execute("DELETE FROM source WHERE path = ?", (path,)).rowcount > 0
        )


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        "CREATE TABLE source (no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, "
        "cited TEXT NOT NULL, project TEXT NOT NULL)"
    )


OWNER = Owner("sources", [_create])
