"""Access to `index.db`, which is opened on first use."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.files import file_exists
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.types.memory import DEFAULT_TENANT, Hit, Memory, Query
from upwell.memory.base import Store
from upwell.memory.documents import tables
from upwell.memory.documents.scan import KnownFile
from upwell.memory.documents.sections.search import SectionSearch
from upwell.memory.documents.tables import FileReading
from upwell.memory.embedding.questions import QuestionVectors
from upwell.memory.sqlite.store import SqliteStore


class DocumentCatalog:
    """The index of one tenant's imported files. Every method raises StoreError if `index.db` fails.

    When the index is opened, `opened` is called once with the index's store.
    """

    def __init__(
        self,
        path: Path,
        tenant: str = DEFAULT_TENANT,
        *,
        opened: Callable[[Store], None] = lambda _: None,
        questions: QuestionVectors | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._path = path
        self._opened = opened
        self._tenant = tenant
        self._clock = clock
        self._questions = questions
        self._opening = asyncio.Lock()
        self._sections = SectionSearch(tenant)
        self._database: Database | None = None
        self._store: SqliteStore | None = None
        self._known: tuple[tuple[int, int], Mapping[str, KnownFile]] | None = None

    @property
    def tenant(self) -> str:
        return self._tenant

    @property
    def embeds(self) -> bool:
        """True if vectors are stored for the sections."""
        return self._questions is not None

    @property
    def exists(self) -> bool:
        return file_exists(self._path)

    async def store(self) -> SqliteStore | None:
        """Return the store that holds the index's memories, or None if there is no index."""
        if not self.exists:
            return None
        await self._open()
        return self._store

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """Return the Markdown passages relevant to `query`, most relevant first."""
        database = await self._open()
        return await database.read(lambda db: self._sections.search(db, query, deadline))

    async def passages(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        """Reduce each section in `hits` to the passage relevant to `query`."""
        database = await self._open()
        return await database.read(lambda db: self._sections.passages(db, query, hits))

    async def get(self, memory_id: str) -> Memory | None:
        """Return the section or note with this id."""
        if not self.exists:
            return None
        database = await self._open()
        section = await database.read(partial(tables.section, id=memory_id, tenant=self._tenant))
        assert self._store is not None
        return section or await self._store.get(memory_id)

    async def known(self) -> Mapping[str, KnownFile]:
        """Return the state of every indexed file, cached until a process changes the index."""
        database = await self._open()
        version = await database.data_version()
        if self._known is None or self._known[0] != version:
            self._known = version, await database.read(tables.load)
        return self._known[1]

    async def file_cited(
        self, cited: str, project: str | None, namespaces: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Return the path of the file with this citation, and the path of its source. See
        `tables.file_cited()`."""
        if not self.exists:
            return None
        database = await self._open()
        return await database.read(lambda db: tables.file_cited(db, cited, project, namespaces))

    async def put(self, readings: Sequence[FileReading]) -> None:
        """Update these files in the index, in one transaction."""
        database = await self._open()
        await database.write(partial(tables.put, readings=readings, tenant=self._tenant))

    async def drop(self, paths: Sequence[str]) -> None:
        """Remove these files and their memories from the index."""
        if paths:
            database = await self._open()
            await database.write(partial(tables.drop, paths=paths, tenant=self._tenant))

    async def measure(self) -> None:
        """Measure the null scores (`memory/ranking/calibrate.py`) of every project that has grown
        enough since it was last measured."""
        database = await self._open()
        projects = await database.read(self._projects)
        assert self._store is not None
        await self._store.measure(projects)

    async def counts(self, source: str = "") -> tuple[int, int]:
        """Count the files and chunks of a source, or of all sources. See `tables.counts()`."""
        if not self.exists:
            return 0, 0
        return await (await self._open()).read(partial(tables.counts, source=source))

    async def problems(self) -> list[tuple[str, str]]:
        """Return the unreadable files, each with the reason."""
        return await (await self._open()).read(tables.problems) if self.exists else []

    async def aclose(self) -> None:
        if self._database is not None:
            await self._database.aclose()

    def _projects(self, db: sqlite3.Connection) -> list[str | None]:
        rows = db.execute("SELECT project FROM scope WHERE tenant = ?", (self._tenant,))
        return [row[0] or None for row in rows]

    async def _open(self) -> Database:
        # The lock keeps two concurrent searches from opening the index twice.
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(_open_index, self._path)
                self._store = SqliteStore(
                    self._database,
                    tenant=self._tenant,
                    clock=self._clock,
                    questions=self._questions,
                )
                if self._questions:
                    await self._database.write(tables.embed_sections)
                self._opened(self._store)
        return self._database


def _open_index(path: Path) -> Database:
    # SQLite would apply the -wal and -shm files of a deleted index to the new index.
    if not path.exists():
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    return open_database(path, tables.OWNERS, synchronous="NORMAL")
