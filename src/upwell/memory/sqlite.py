"""The store on this machine: memories in `memory.db`, found by words, files and symbols."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace

from upwell.ground.db import Database
from upwell.ground.errors import RecallUnavailable, StoreError, UsageError
from upwell.ground.limits import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.text.counts import counted
from upwell.ground.types import DEFAULT_TENANT, Hit, Memory, Ping, Query, Scope
from upwell.memory import background, index
from upwell.memory.base import Added
from upwell.memory.duplicates import find_duplicates
from upwell.memory.meaning import Meaning, Questions
from upwell.memory.rows import check, from_json, stamped, to_json, visible_scopes
from upwell.memory.search import Asked, search
from upwell.memory.signals import best_bm25
from upwell.memory.successors import successors

TRASH_SECONDS = 30 * 86_400.0
SMALL = 5_000
"""Memories of a store in which a search by words takes a few milliseconds, no longer than trips to
another thread and the wait for the interpreter there."""


class SqliteStore:
    """`Store` over one database. Ids belong to a tenant; `get` and its like speak of `tenant`'s.

    With `questions` it also finds what means the same. Vectors are made by `meaning.catch_up`,
    never while something is added.
    """

    name = "builtin"

    def __init__(
        self,
        database: Database,
        *,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
        questions: Questions | None = None,
    ) -> None:
        self._database = database
        self.meaning = Meaning(questions, database) if questions else None
        self._tenant = tenant
        self._clock = clock

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Keep them, in one transaction. A given id is kept and replaces what had it.

        Raises:
            UsageError: an empty text.
            StoreError: nothing was kept.
        """
        now = self._clock.now()
        for memory in memories:
            check(memory)
        complete = [stamped(memory, now) for memory in memories]

        def keep(db: sqlite3.Connection) -> tuple[list[Added], list[Scope]]:
            duplicates = find_duplicates(db, complete)
            index.insert(db, complete)
            added = [
                Added(id=memory.id, duplicates=found)
                for memory, found in zip(complete, duplicates, strict=True)
            ]
            seen_by = [
                Scope(tenant=tenant, project=project)
                for tenant, project in dict.fromkeys((m.tenant, m.project) for m in complete)
            ]
            everything = [Scope(tenant=tenant) for tenant in {m.tenant for m in complete}]
            return added, [one for one in {*seen_by, *everything} if background.is_due(db, one)]

        if not complete:
            return []
        added, due = await self._database.write(keep)
        for scope in due:
            await background.measure(self._database, scope, best_bm25)
        return added

    async def get(self, memory_id: str) -> Memory | None:
        """The memory with this id; None when there is none, or its time is up."""
        found = await self._database.read(lambda db: _look_up(db, self._tenant, memory_id))
        if found is None or (found.expires_at or self._clock.now() + 1) <= self._clock.now():
            return None
        return found

    async def update(self, memory: Memory) -> None:
        """Replace the memory of that id; its time of creation stays.

        Raises:
            UsageError: there is none, or the new text is empty.
        """
        check(memory)
        now = self._clock.now()

        def change(db: sqlite3.Connection) -> None:
            old = _look_up(db, self._tenant, memory.id)
            if old is None:
                raise UsageError(f"no memory has the id {memory.id!r}", hint="see `upwell recall`")
            new = replace(memory, created_at=old.created_at, updated_at=now)
            index.insert(db, [stamped(new, now)])

        await self._database.write(change)

    async def delete(self, memory_id: str) -> bool:
        """Move it to the trash, out of every index. False when it is not there."""
        now = self._clock.now()

        def discard(db: sqlite3.Connection) -> bool:
            n = index.number_of(db, self._tenant, memory_id)
            if n is None:
                return False
            memory = index.by_number(db, [n])[n]
            index.remove(db, n)
            db.execute(
                "INSERT OR REPLACE INTO trash VALUES (?, ?, ?, ?)",
                (self._tenant, memory_id, now, to_json(memory)),
            )
            return True

        return await self._database.write(discard)

    async def restore(self, memory_id: str) -> bool:
        """Bring it back from the trash. False when it is not there, or its id is taken again."""

        def bring_back(db: sqlite3.Connection) -> bool:
            row = db.execute(
                "SELECT memory FROM trash WHERE tenant = ? AND id = ?", (self._tenant, memory_id)
            ).fetchone()
            if row is None or index.number_of(db, self._tenant, memory_id) is not None:
                return False
            index.insert(db, [from_json(row[0])])
            db.execute("DELETE FROM trash WHERE tenant = ? AND id = ?", (self._tenant, memory_id))
            return True

        return await self._database.write(bring_back)

    async def purge(self, memory_id: str | None = None) -> int:
        """Remove for good: one memory wherever it stands, or what has been in the trash for 30
        days and what has expired. Nothing of its text stays in the file. Returns how many."""
        now = self._clock.now()

        def forget(db: sqlite3.Connection) -> int:
            if memory_id is not None:
                return _forget(db, self._tenant, memory_id)
            expired = db.execute("SELECT n FROM memory WHERE expires_at <= ?", (now,)).fetchall()
            for (n,) in expired:
                index.remove(db, n)
            old = db.execute("DELETE FROM trash WHERE deleted_at < ?", (now - TRASH_SECONDS,))
            return len(expired) + old.rowcount

        gone = await self._database.write(forget)
        if gone:
            await self._database.write(
                lambda db: db.execute("INSERT INTO words (words) VALUES ('optimize')")
            )
            await self._database.checkpoint()
        return gone

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """The standing rules of this scope, newest first. What an agent or a tool said is none."""
        return await self._newest(scope, "pinned AND trust NOT IN ('agent', 'tool')", (), limit, 0)

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        """What was deleted and can be restored, the latest first."""

        def look(db: sqlite3.Connection) -> Sequence[Memory]:
            rows = db.execute(
                "SELECT memory FROM trash WHERE tenant = ? ORDER BY deleted_at DESC LIMIT ?",
                (self._tenant, limit),
            )
            return [from_json(text) for (text,) in rows]

        return await self._database.read(look)

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Of these memories those that were superseded, each with the id of what stands for it."""
        now = self._clock.now()

        def look(db: sqlite3.Connection) -> Mapping[str, str]:
            scopes = visible_scopes(db, Scope(tenant=self._tenant))
            return {old: new.id for old, new in successors(db, ids, scopes, now).items()}

        return await self._database.read(look)

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """The memories that bear on `query`, most probable first, at most `query.limit`.

        Raises:
            RecallUnavailable: the database failed.
        """
        now = self._clock.now()
        asked = await self._asked(query, deadline)

        def look(db: sqlite3.Connection) -> list[Hit]:
            return search(db, query, now, deadline, asked)

        def look_if_small(db: sqlite3.Connection) -> list[Hit] | None:
            return look(db) if _size(db) <= SMALL else None

        try:
            found = None if asked else await self._database.glance(look_if_small)
            return await self._database.read(look) if found is None else found
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error

    async def _asked(self, query: Query, deadline: Deadline) -> Asked | None:
        if self.meaning is None or not query.texts:
            return None
        vector = await self.meaning.vector(query.texts[0], deadline)
        return None if vector is None else Asked(vector, self.meaning)

    async def ping(self) -> Ping:
        try:
            count = await self._database.read(_size)
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=counted(count, "memory", "memories"))

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """Newest first."""
        return await self._newest(scope, "1", (), limit, offset)

    async def _newest(
        self, scope: Scope, condition: str, values: tuple[object, ...], limit: int, offset: int
    ) -> Sequence[Memory]:
        now = self._clock.now()
        condition = f"{condition} AND (expires_at IS NULL OR expires_at > ?)"
        if scope.namespaces:
            condition += f" AND namespace IN ({','.join('?' * len(scope.namespaces))})"
        return await self._database.read(
            lambda db: index.newest(
                db,
                visible_scopes(db, scope),
                condition,
                (*values, now, *scope.namespaces),
                limit=limit,
                offset=offset,
            )
        )


def _look_up(db: sqlite3.Connection, tenant: str, memory_id: str) -> Memory | None:
    n = index.number_of(db, tenant, memory_id)
    return None if n is None else index.by_number(db, [n])[n]


def _forget(db: sqlite3.Connection, tenant: str, memory_id: str) -> int:
    n = index.number_of(db, tenant, memory_id)
    if n is not None:
        index.remove(db, n)
    trashed = db.execute("DELETE FROM trash WHERE tenant = ? AND id = ?", (tenant, memory_id))
    return int(n is not None or trashed.rowcount > 0)


def _size(db: sqlite3.Connection) -> int:
    """How many memories there are, of every project."""
    return int(db.execute("SELECT coalesce(sum(memories), 0) FROM scope").fetchone()[0])
