"""Daily copies of a database: `backups/NAME-2026-04-09.db`, the newest seven kept.

Made by `VACUUM INTO` on a connection of its own, while everybody else goes on; by whichever
process comes first that day.
"""

import asyncio
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from upwell.ground.files import exclusively, writing
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.sqlite_file import from_sqlite, vacuum_into

KEEP = 7


class Backups:
    """The copies of one database file, in a folder of their own."""

    def __init__(
        self, path: Path, folder: Path, *, keep: int = KEEP, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._path = path
        self._folder = folder
        self._keep = keep
        self._clock = clock

    def list(self) -> tuple[Path, ...]:
        """The daily copies there are, newest first."""
        dated = re.compile(re.escape(self._path.stem) + r"-\d{4}-\d{2}-\d{2}\.db")
        if not self._folder.is_dir():
            return ()
        found = [path for path in self._folder.iterdir() if dated.fullmatch(path.name)]
        return tuple(sorted(found, reverse=True))

    async def make_if_due(self) -> Path | None:
        """Today's copy, when there is none yet; None when there is.

        Raises:
            StoreError: it cannot be written; what was there stays.
        """
        return await asyncio.to_thread(self._make, self._today(), again=False)

    async def make(self) -> Path:
        """Today's copy, made anew.

        Raises:
            StoreError: as `make_if_due`.
        """
        path = self._today()
        await asyncio.to_thread(self._make, path, again=True)
        return path

    def _today(self) -> Path:
        day = datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat()
        return self._folder / f"{self._path.stem}-{day}.db"

    def _make(self, path: Path, *, again: bool) -> Path | None:
        if path.exists() and not again:
            return None
        with writing(path):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusively(self._folder / self._path.stem):
                if path.exists() and not again:
                    return None
                try:
                    with closing(sqlite3.connect(self._path)) as db:
                        vacuum_into(db, path)
                except sqlite3.Error as error:
                    raise from_sqlite(error, path) from error
                for old in self.list()[self._keep :]:
                    old.unlink(missing_ok=True)
        return path
