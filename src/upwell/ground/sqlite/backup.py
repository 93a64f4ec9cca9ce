"""Daily backups of a database: `backups/NAME-2026-04-09.db`. The newest seven are kept.

The first process of the day makes the backup with `VACUUM INTO` on a separate connection, which
does not block other connections.
"""

import asyncio
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.files import exclusively, writing
from upwell.ground.sqlite.file import from_sqlite, vacuum_into

KEEP = 7


class Backups:
    """The backups of one database file in `folder`."""

    def __init__(self, path: Path, folder: Path, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._folder = folder
        self._clock = clock
        self._dated = re.compile(re.escape(path.stem) + r"-\d{4}-\d{2}-\d{2}\.db")

    def list(self) -> tuple[Path, ...]:
        """Return the daily backups, newest first."""
        if not self._folder.is_dir():
            return ()
        backups = [path for path in self._folder.iterdir() if self._dated.fullmatch(path.name)]
        return tuple(sorted(backups, reverse=True))

    def is_due(self) -> bool:
        """Whether today's backup is missing."""
        return not self._today().exists()

    async def make_if_due(self) -> Path | None:
        """Make today's backup. Returns None if it already exists.

        Raises:
            StoreError: the backup cannot be made. Existing backups are kept.
        """
        return await asyncio.to_thread(self._make, self._today(), replace=False)

    async def make(self) -> Path:
        """Make today's backup, replacing an existing one.

        Raises:
            StoreError: as for `make_if_due()`.
        """
        path = self._today()
        await asyncio.to_thread(self._make, path, replace=True)
        return path

    def _today(self) -> Path:
        day = datetime.fromtimestamp(self._clock.now(), UTC).date().isoformat()
        return self._folder / f"{self._path.stem}-{day}.db"

    def _make(self, path: Path, *, replace: bool) -> Path | None:
        if path.exists() and not replace:
            return None
        with writing(path):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusively(self._folder / self._path.stem):
                if path.exists() and not replace:
                    return None
                self._remove_partial()
                try:
                    with closing(sqlite3.connect(self._path)) as db:
                        vacuum_into(db, path)
                except sqlite3.Error as error:
                    raise from_sqlite(error, path) from error
                self._remove_old(path)
        return path

    def _remove_partial(self) -> None:
        """Remove what backups that were killed have left. The caller holds the lock."""
        for path in self._folder.glob(f"{self._path.stem}-*.db.partial*"):
            if self._dated.match(path.name):
                path.unlink(missing_ok=True)

    def _remove_old(self, newest: Path) -> None:
        """Keep `newest` and those before it. While the clock was wrong, backups may have got dates
        in the future, and those go first."""
        others = [other for other in self.list() if other != newest]
        others.sort(key=lambda other: (other < newest, other), reverse=True)
        for old in others[KEEP - 1 :]:
            old.unlink(missing_ok=True)
