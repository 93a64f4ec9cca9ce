"""`index.db`, opened when there is something to put in it, and again when somebody deleted it."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from upwell.ground.db import Database, open_database
from upwell.ground.files import is_there
from upwell.ground.limits import Clock
from upwell.ground.types import Scope
from upwell.memory import background, derived
from upwell.memory.derived import Reading
from upwell.memory.meaning import Questions
from upwell.memory.scan import Known
from upwell.memory.signals import best_bm25
from upwell.memory.sqlite import SqliteStore


class Catalog:
    """The index of one tenant's files. Every method raises StoreError when the file fails."""

    def __init__(
        self,
        path: Path,
        tenant: str,
        clock: Clock,
        opened: Callable[[Database], None],
        questions: Questions | None,
    ) -> None:
        self._path = path
        self._opened = opened
        self._tenant = tenant
        self._clock = clock
        self._questions = questions
        self._database: Database | None = None
        self._store: SqliteStore | None = None
        self._known: tuple[tuple[int, int], Mapping[str, Known]] | None = None

    @property
    def exists(self) -> bool:
        return is_there(self._path)

    async def store(self) -> SqliteStore | None:
        """What it holds, as memories; None where there is nothing."""
        if not self.exists:
            return None
        await self._open()
        return self._store

    async def known(self) -> Mapping[str, Known]:
        """The files it was made of, kept at hand until anybody changes it."""
        database = await self._open()
        version = await database.data_version()
        if self._known is None or self._known[0] != version:
            self._known = version, await database.read(derived.load)
        return self._known[1]

    async def file_cited(
        self, cited: str, project: str | None, namespaces: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Path and source path of the file that a project cites so, all of it in `namespaces`."""
        if not self.exists:
            return None
        database = await self._open()
        return await database.read(lambda db: derived.file_cited(db, cited, project, namespaces))

    async def put(self, readings: Sequence[Reading]) -> None:
        """Bring these files up to date, in one transaction."""
        database = await self._open()
        await database.write(partial(derived.put, readings=readings, tenant=self._tenant))

    async def drop(self, paths: Sequence[str]) -> None:
        """Forget these files."""
        if paths:
            database = await self._open()
            await database.write(partial(derived.drop, paths=paths, tenant=self._tenant))

    async def measure(self) -> None:
        """Find out what chance looks like, where enough was added since."""
        database = await self._open()
        for scope in await database.read(self._due):
            await background.measure(database, scope, best_bm25)

    async def counts(self, source: str = "") -> tuple[int, int]:
        """How many files and chunks there are, of one source or of all."""
        if not self.exists:
            return 0, 0
        return await (await self._open()).read(partial(derived.counts, source=source))

    async def problems(self) -> list[tuple[str, str]]:
        """Files that say nothing, and why."""
        return await (await self._open()).read(derived.problems) if self.exists else []

    async def aclose(self) -> None:
        if self._database is not None:
            await self._database.aclose()

    def _due(self, db: sqlite3.Connection) -> list[Scope]:
        projects = db.execute("SELECT project FROM scope WHERE tenant = ?", (self._tenant,))
        scopes = [Scope(tenant=self._tenant, project=row[0] or None) for row in projects]
        return [one for one in {*scopes, Scope(tenant=self._tenant)} if background.is_due(db, one)]

    async def _open(self) -> Database:
        if self._database is None:
            self._database = await asyncio.to_thread(_open_index, self._path)
            self._store = SqliteStore(
                self._database, tenant=self._tenant, clock=self._clock, questions=self._questions
            )
            self._opened(self._database)
        return self._database


def _open_index(path: Path) -> Database:
    """What a deleted index left beside it is nobody's."""
    if not path.exists():
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    return open_database(path, derived.OWNERS, synchronous="NORMAL")
