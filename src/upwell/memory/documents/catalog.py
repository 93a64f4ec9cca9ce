"""`index.db`, which is opened on first use: the files and what was extracted from them.

    file ──< section (sections/rows.py)            a Markdown file
         └──< part ── memory (memory/sqlite/)      a note; a section that is also found by its
                                                   paths or its meaning

Everything here is derived from the files. A damaged or deleted `index.db` is rebuilt on the next
search.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.files import file_exists
from upwell.ground.sqlite.database import Database, Owner, open_database
from upwell.ground.sqlite.file import recreate
from upwell.ground.types.memory import DEFAULT_TENANT, Hit, Memory, Query
from upwell.memory.base import Store
from upwell.memory.documents.reading import FileReading, KnownFile
from upwell.memory.documents.sections import rows
from upwell.memory.documents.sections.rows import FilePlace, section_memory
from upwell.memory.documents.sections.search import SectionSearch
from upwell.memory.meaning import QuestionVectors
from upwell.memory.sqlite.rows import by_number, insert, number_of, remove, within
from upwell.memory.sqlite.store import OWNER as MEMORY_OWNER
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.sqlite.vectors import OWNER as VECTORS_OWNER


def load(db: sqlite3.Connection) -> dict[str, KnownFile]:
    rows = db.execute("SELECT path, size, mtime_ns, hash, key FROM file")
    return {row[0]: KnownFile(*row[1:]) for row in rows}


def put(db: sqlite3.Connection, readings: Sequence[FileReading], tenant: str) -> None:
    changed: list[Memory] = []
    around: dict[str, str] = {}
    for reading in readings:
        if reading.unchanged:
            db.execute(
                "UPDATE file SET size = ?, mtime_ns = ? WHERE path = ?",
                (reading.found.size, reading.found.mtime_ns, reading.found.path),
            )
            continue
        no = _note(db, reading)
        rows.insert(db, no, reading.found.source.project or "", reading.sections)
        fresh = {memory.id: memory for memory in reading.memories}
        changed += _differing(db, tenant, no, fresh)
        around |= reading.around
        db.execute("DELETE FROM part WHERE file = ?", (no,))
        db.executemany("INSERT OR REPLACE INTO part VALUES (?, ?)", [(id, no) for id in fresh])
    insert(db, changed, around)


def drop(db: sqlite3.Connection, paths: Iterable[str], tenant: str) -> None:
    for path in paths:
        row = db.execute("SELECT no FROM file WHERE path = ?", (path,)).fetchone()
        if row is None:
            continue
        rows.remove(db, row[0])
        _differing(db, tenant, row[0], {})
        db.execute("DELETE FROM part WHERE file = ?", row)
        db.execute("DELETE FROM file WHERE no = ?", row)


def file_cited(
    db: sqlite3.Connection, cited: str, project: str | None, namespaces: Sequence[str] = ()
) -> tuple[str, str] | None:
    """Return the path of the file with this citation, and the path of its source. A project's own
    file takes precedence over a global one. If `namespaces` is given, a file is found only if all
    of its content is in them."""
    visible = "" if project is None else "AND project IN ('', ?)"
    names: tuple[str, ...] = ()
    if namespaces:
        among, names = within("namespace", namespaces)
        part_among, _ = within("memory.namespace", namespaces)
        visible += (
            f" AND (({among} AND no IN (SELECT file FROM section)) OR "
            "(namespace = '' AND no IN (SELECT file FROM part) AND NOT EXISTS (SELECT 1 FROM part "
            "JOIN memory ON memory.id = part.id "
            f"WHERE part.file = no AND NOT {part_among})))"
        )
    row = db.execute(
        f"SELECT path, source FROM file WHERE cited = ? {visible} "
        "ORDER BY project DESC, no LIMIT 1",
        (cited, *(() if project is None else (project,)), *names, *names),
    ).fetchone()
    return (row[0], row[1]) if row else None


def counts(db: sqlite3.Connection, source: str = "") -> tuple[int, int]:
    """Count the readable files of a source, or of all sources, and the chunks in them. Chunks are
    sections with text, and notes."""
    within = "WHERE problem = ''" + (" AND source = ?" if source else "")
    files, chunks = db.execute(
        "SELECT count(*), "
        "total((SELECT count(*) FROM section WHERE section.file = file.no AND text != '')) + "
        "total((SELECT count(*) FROM part WHERE part.file = file.no "
        "AND id NOT IN (SELECT id FROM section))) "
        f"FROM file {within}",
        (source,) if source else (),
    ).fetchone()
    return int(files), int(chunks)


def section_at(db: sqlite3.Connection, id: str, tenant: str) -> Memory | None:
    row = db.execute(
        "SELECT section.text, trail, first_line, last_line, cited, project, namespace, tags, "
        "changed_at FROM section JOIN file ON file.no = section.file WHERE id = ?",
        (id,),
    ).fetchone()
    if row is None:
        return None
    text, trail, first, last, cited, project, namespace, tags, changed_at = row
    file = FilePlace(cited, project or None, namespace, tags, changed_at)
    return section_memory(id, text or trail, (first, last), file, tenant)


def embed_sections(db: sqlite3.Connection) -> None:
    """Mark the files whose sections are not memories yet, so that they are read again. A search by
    meaning finds only sections that are memories."""
    missing = "SELECT file FROM section WHERE text != '' AND id NOT IN (SELECT id FROM part)"
    db.execute(f"UPDATE file SET hash = '', mtime_ns = 0 WHERE no IN ({missing})")


def problems(db: sqlite3.Connection) -> list[tuple[str, str]]:
    return db.execute("SELECT path, problem FROM file WHERE problem != '' ORDER BY path").fetchall()


def _note(db: sqlite3.Connection, reading: FileReading) -> int:
    file = reading.found
    source = file.source
    row = db.execute(
        "INSERT INTO file (path, source, cited, project, key, size, mtime_ns, hash, problem, "
        "namespace, tags, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (path) DO UPDATE SET source = excluded.source, "
        "cited = excluded.cited, project = excluded.project, key = excluded.key, "
        "size = excluded.size, mtime_ns = excluded.mtime_ns, "
        "hash = excluded.hash, problem = excluded.problem, namespace = excluded.namespace, "
        "tags = excluded.tags, changed_at = excluded.changed_at RETURNING no",
        (
            file.path,
            source.path,
            source.citation(file.path),
            source.project or "",
            source.key,
            file.size,
            file.mtime_ns,
            reading.hash,
            reading.problem,
            reading.namespace,
            json.dumps(reading.tags),
            reading.changed_at,
        ),
    ).fetchone()
    return int(row[0])


def _differing(
    db: sqlite3.Connection, tenant: str, no: int, fresh: Mapping[str, Memory]
) -> list[Memory]:
    """Return the memories in `fresh` that are new or changed. The file's stored memories that are
    not in `fresh` are removed. Memories that only moved get their new lines and times."""
    ids = [row[0] for row in db.execute("SELECT id FROM part WHERE file = ?", (no,))]
    numbers = {id: number_of(db, tenant, id) for id in ids}
    old = by_number(db, [n for n in numbers.values() if n is not None])
    unchanged: set[str] = set()
    for id, n in numbers.items():
        if n is None:
            continue
        new = fresh.get(id)
        if new is None:
            remove(db, n)
        elif replace(old[n], lines=new.lines, **_times(new)) == new:
            unchanged.add(id)
            db.execute(
                "UPDATE memory SET first_line = ?, last_line = ?, created_at = ?, updated_at = ?, "
                "viewed_at = ? WHERE n = ?",
                (*(new.lines or (None, None)), *_times(new).values(), n),
            )
    return [memory for id, memory in fresh.items() if id not in unchanged]


def _times(memory: Memory) -> dict[str, float | None]:
    return {name: getattr(memory, name) for name in ("created_at", "updated_at", "viewed_at")}


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE file (
            no INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, source TEXT NOT NULL,
            cited TEXT NOT NULL, project TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
            mtime_ns INTEGER NOT NULL, hash TEXT NOT NULL, problem TEXT NOT NULL)"""
    )
    db.execute("CREATE INDEX file_cited ON file (cited)")
    db.execute(
        "CREATE TABLE part (id TEXT PRIMARY KEY, file INTEGER NOT NULL REFERENCES file (no)) "
        "WITHOUT ROWID"
    )
    db.execute("CREATE INDEX part_file ON part (file)")


def _add_sections(db: sqlite3.Connection) -> None:
    """Add the section tables, and mark every file as changed. When a file is read again, it is
    split into sections, and its old chunks are removed."""
    for column in (
        "namespace TEXT NOT NULL DEFAULT ''",
        "tags TEXT NOT NULL DEFAULT '[]'",
        "changed_at REAL NOT NULL DEFAULT 0",
    ):
        db.execute(f"ALTER TABLE file ADD COLUMN {column}")
    rows.create(db)
    db.execute("UPDATE file SET hash = '', mtime_ns = 0")


OWNERS = (
    Owner(MEMORY_OWNER.name, MEMORY_OWNER.migrations, recreate),
    Owner("documents", [_create, _add_sections], recreate),
    VECTORS_OWNER,
)


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
        self.tenant = tenant
        self._clock = clock
        self._questions = questions
        self._opening = asyncio.Lock()
        self._sections = SectionSearch(tenant)
        self._database: Database | None = None
        self._store: SqliteStore | None = None
        self._known: tuple[tuple[int, int], Mapping[str, KnownFile]] | None = None

    @property
    def embeds(self) -> bool:
        return self._questions is not None

    @property
    def exists(self) -> bool:
        return file_exists(self._path)

    async def store(self) -> SqliteStore | None:
        if not self.exists:
            return None
        await self._open()
        return self._store

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        return await self._read(lambda db: self._sections.search(db, query, deadline))

    async def passages(self, query: Query, hits: Sequence[Hit]) -> list[Hit]:
        return await self._read(lambda db: self._sections.passages(db, query, hits))

    async def get(self, memory_id: str) -> Memory | None:
        store = await self.store()
        if store is None:
            return None
        section = await self._read(partial(section_at, id=memory_id, tenant=self.tenant))
        return section or await store.get(memory_id)

    async def known(self) -> Mapping[str, KnownFile]:
        """Return the state of every indexed file, cached until a process changes the index."""
        database = await self._open()
        version = await database.data_version()
        if self._known is None or self._known[0] != version:
            self._known = version, await database.read(load)
        return self._known[1]

    async def file_cited(
        self, cited: str, project: str | None, namespaces: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        if not self.exists:
            return None
        return await self._read(lambda db: file_cited(db, cited, project, namespaces))

    async def put(self, readings: Sequence[FileReading]) -> None:
        database = await self._open()
        await database.write(partial(put, readings=readings, tenant=self.tenant))

    async def drop(self, paths: Sequence[str]) -> None:
        if paths:
            database = await self._open()
            await database.write(partial(drop, paths=paths, tenant=self.tenant))

    async def measure(self) -> None:
        sql = "SELECT project FROM scope WHERE tenant = ?"
        rows = await self._read(lambda db: db.execute(sql, (self.tenant,)).fetchall())
        assert self._store is not None
        await self._store.measure([project or None for (project,) in rows])

    async def counts(self, source: str = "") -> tuple[int, int]:
        return await self._read(partial(counts, source=source)) if self.exists else (0, 0)

    async def problems(self) -> list[tuple[str, str]]:
        return await self._read(problems) if self.exists else []

    async def aclose(self) -> None:
        if self._database is not None:
            await self._database.aclose()

    async def _read[T](self, look: Callable[[sqlite3.Connection], T]) -> T:
        return await (await self._open()).read(look)

    async def _open(self) -> Database:
        # The lock keeps two concurrent searches from opening the index twice.
        async with self._opening:
            if self._database is None:
                self._database = await asyncio.to_thread(_open_index, self._path)
                self._store = SqliteStore(
                    self._database,
                    tenant=self.tenant,
                    clock=self._clock,
                    questions=self._questions,
                )
                if self._questions:
                    await self._database.write(embed_sections)
                self._opened(self._store)
        return self._database


def _open_index(path: Path) -> Database:
    # SQLite would apply the -wal and -shm files of a deleted index to the new index.
    if not path.exists():
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    return open_database(path, OWNERS, synchronous="NORMAL")
