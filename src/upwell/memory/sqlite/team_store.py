"""The store of a developer who shares memories with a team: the developer's own `memory.db`, which
also has a snapshot of the team's memories.

A team's memory is a row of `memory` like any other, so one search finds it together with the
developer's own memories, without network access. `team_row` lists the ids of these rows. Their
contents come from the latest snapshot and from the writes that wait in the queue
(`memory/team/exchange.py`).
"""

import asyncio
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import batched

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.sqlite.file import DamagedFile
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Scope
from upwell.ground.types.rpc import PRIVATE
from upwell.memory.base import Added
from upwell.memory.meaning import QuestionVectors
from upwell.memory.records import check, complete, stamped
from upwell.memory.sqlite.rows import CHUNK, by_id, insert, marks, number_of, remove
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.team.exchange import Outgoing, QueuedWrite, Removal, TeamMemories, WriteQueue
from upwell.memory.team.sharing import for_team, is_for_team, teams_namespace


def snapshot_owner(queue: WriteQueue) -> Owner:
    """Return the snapshot's tables in a database file. The writes that an earlier version left in
    the file are moved to `queue`."""
    return Owner("team_snapshot", (partial(_create, queue),), _salvage)


def _create(queue: WriteQueue, db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE team_snapshot (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            source TEXT NOT NULL DEFAULT '',
            etag TEXT NOT NULL DEFAULT '', checked_at REAL NOT NULL DEFAULT 0)"""
    )
    db.execute("INSERT INTO team_snapshot (one) VALUES (1)")
    db.execute("CREATE TABLE team_row (id TEXT PRIMARY KEY) WITHOUT ROWID")
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'outbox'").fetchone():
        _take_over(queue, db)


def _take_over(queue: WriteQueue, db: sqlite3.Connection) -> None:
    """Replace the tables of an earlier version, which copied memories one by one. Its outbox goes
    to the queue. If the process is killed before the tables are gone, the same writes are queued
    again with the same tokens."""
    rows = db.execute("SELECT id, token, at FROM outbox ORDER BY at, id").fetchall()
    memories = by_id(db, DEFAULT_TENANT, [id for id, _, _ in rows])
    trashed = {id for (id,) in db.execute("SELECT id FROM trash")}
    for id, token, at in rows:
        memory = memories.get(id)
        if memory is not None and not memory.namespace.startswith(PRIVATE):
            queue.append([Outgoing(token, id, memory)], at)
        else:
            is_kept = memory is not None or id in trashed
            removal = Removal.TRASH if is_kept else Removal.PURGE
            queue.append([Outgoing(token, id, removal)], at)
    (source,) = db.execute("SELECT source FROM team").fetchone()
    # The name of the store was followed by what a token sees of it.
    db.execute("UPDATE team_snapshot SET source = ?", (source.partition("/")[0],))
    db.execute("INSERT INTO team_row SELECT id FROM team_memory")
    for trigger in ("team_stored", "team_removed"):
        db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for table in ("team", "team_project", "team_memory", "outbox"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
    # A process of the earlier version must not take the missing tables for damage.
    db.execute("UPDATE schema_version SET version = 2 WHERE owner = 'team'")


def _salvage(source: DamagedFile, fresh: sqlite3.Connection) -> int:
    """Salvage the list of the team's rows. The whole snapshot is read again, because memories may
    be missing."""
    from upwell.ground.sqlite.salvage import copy_table

    fresh.execute("DELETE FROM team_snapshot WHERE source = ''")
    saved = sum(copy_table(source, fresh, table) for table in ("team_snapshot", "team_row"))
    fresh.execute("INSERT OR IGNORE INTO team_snapshot (one) VALUES (1)")
    fresh.execute("UPDATE team_snapshot SET etag = ''")
    return saved


class SnapshotState(Struct, frozen=True):
    """The store of which the file has a snapshot ("": none yet), the snapshot's ETag, when it was
    last known to be current, in epoch seconds (0: never), and the number of its memories."""

    source: str
    etag: str
    checked_at: float
    memories: int


def snapshot_state(db: sqlite3.Connection) -> SnapshotState:
    sql = "SELECT source, etag, checked_at, (SELECT count(*) FROM team_row) FROM team_snapshot"
    return SnapshotState(*db.execute(sql).fetchone())


def team_rows(db: sqlite3.Connection) -> set[str]:
    return {id for (id,) in db.execute("SELECT id FROM team_row")}


def differing(
    db: sqlite3.Connection, memories: Sequence[Memory], copied: Collection[str]
) -> list[Memory]:
    """Return the memories of a snapshot that the file lacks or has in another version. If an id
    happens to belong to one of the developer's own memories, that one is left alone. It is not
    superseded either, unless the developer shared a memory that supersedes it. `copied` has the ids
    of the team's memories in the file."""
    stored = by_id(db, DEFAULT_TENANT, [memory.id for memory in memories])
    own = by_id(db, DEFAULT_TENANT, [m.supersedes for m in memories if m.supersedes])
    own = {id: memory for id, memory in own.items() if id not in copied}
    found = []
    for memory in memories:
        old = stored.get(memory.id)
        if memory.supersedes in own and (old is None or old.supersedes != memory.supersedes):
            memory = replace(memory, supersedes=None)
        if old is None or (memory.id in copied and old != memory):
            found.append(memory)
    return found


def store_snapshot(db: sqlite3.Connection, memories: Sequence[Memory]) -> None:
    insert(db, memories)
    add_team_rows(db, [memory.id for memory in memories])
    # A memory that the team has restored must leave the trash in this file.
    db.executemany("DELETE FROM trash WHERE id = ?", [(memory.id,) for memory in memories])


def drop_team_rows(db: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Remove memories that the team no longer has. Returns how many the file had."""
    removed = 0
    for id in ids:
        n = number_of(db, DEFAULT_TENANT, id)
        if n is not None:
            remove(db, n)
            removed += 1
        db.execute("DELETE FROM team_row WHERE id = ?", (id,))
    return removed


def add_team_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Note that these memories are the team's."""
    db.executemany("INSERT OR IGNORE INTO team_row VALUES (?)", [(id,) for id in ids])


def remove_team_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Note that these memories are the developer's own from now on."""
    db.executemany("DELETE FROM team_row WHERE id = ?", [(id,) for id in ids])


def team_rows_among(db: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    found = db.execute(f"SELECT id FROM team_row WHERE id IN ({marks(ids)})", ids)
    return {id for (id,) in found}


BATCH = 250
"""How many memories of a new snapshot are stored at once, which takes about 0.1 s."""
BUSY_SHARE = 0.5
"""Storing a snapshot takes up at most this share of the time, so that an agent's events are not
delayed."""


class TeamStore(SqliteStore):
    """The `Store` for a developer's own memories and a snapshot of the team's. No method waits for
    the team's store.

    A memory belongs to the team if a person puts it in the namespace `team` or one below it; all
    other new memories stay on this machine. A write to one of the team's memories is put into
    `queue`, and then made here. If the process is killed in between, the write still reaches the
    team, and comes back with the next snapshot.
    """

    def __init__(
        self,
        database: Database,
        queue: WriteQueue,
        *,
        clock: Clock = SYSTEM_CLOCK,
        questions: QuestionVectors | None = None,
    ) -> None:
        super().__init__(database, clock=clock, questions=questions)
        self.queue = queue
        self._has_removed = False

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Like `SqliteStore.add`, but memories that belong to the team are also queued for
        sending. A memory stays on this machine if its folder has no Git remote that others can
        reach."""
        owned = [self._owned(_prepared(memory)) for memory in memories]
        prepared = complete(owned, self._clock.now())
        await self._share(prepared)
        return await super().add(prepared)

    async def update(self, memory: Memory) -> None:
        check(memory)
        prepared, now = self._owned(_prepared(memory)), self._clock.now()
        for old in await self.get_many([memory.id]):
            new = replace(prepared, created_at=old.created_at, updated_at=now)
            await self._share([stamped(new, now)])
        await super().update(prepared)

    async def delete(self, memory_id: str) -> bool:
        await self._withdraw(memory_id, Removal.TRASH)
        return await super().delete(memory_id)

    async def restore(self, memory_id: str) -> bool:
        trashed = [item.memory for item in await self.discarded() if item.memory.id == memory_id]
        if trashed and not await self.get_many([memory_id]):
            await self._share(trashed)
        return await super().restore(memory_id)

    async def purge(self, memory_id: str | None = None) -> int:
        if memory_id is not None:
            await self._withdraw(memory_id, Removal.PURGE)
            return await super().purge(memory_id)
        count = await super().purge()
        if self._has_removed:
            # Memories that the team has permanently deleted must be erased from this file as well.
            self._has_removed = False
            await self.drop_deleted_words()
        return count

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """Like `SqliteStore.pinned`, but with every rule of the snapshot in one of the team's
        namespaces, whatever namespace it was sent with: nobody else's rule counts as the user's
        own."""
        rules = await super().pinned(scope, limit=limit)
        if not rules:
            return rules
        look = partial(team_rows_among, ids=[rule.id for rule in rules])
        teams = await self._database.inline_read(look)
        return [
            replace(rule, namespace=teams_namespace(rule.namespace)) if rule.id in teams else rule
            for rule in rules
        ]

    async def _share(self, memories: Sequence[Memory]) -> None:
        """Queue the team's memories among these, and those that were the team's until now."""
        ids = [memory.id for memory in memories]
        known = await self._database.read(lambda db: team_rows_among(db, ids))
        shared = [m for m in memories if (is_for_team(m) or m.id in known) and _can_leave(m)]
        private = [m for m in memories if m.id in known and m.namespace.startswith(PRIVATE)]
        if not (shared or private):
            return
        await self._enqueue(
            [_outgoing(memory.id, memory) for memory in shared]
            + [_outgoing(memory.id, Removal.TRASH) for memory in private]
        )
        await self._database.write(partial(add_team_rows, ids=[m.id for m in shared]))
        await self._database.write(partial(remove_team_rows, ids=[m.id for m in private]))

    async def _withdraw(self, memory_id: str, removal: Removal) -> None:
        """Queue the removal of a memory, if it is the team's."""
        if not await self._database.read(lambda db: team_rows_among(db, [memory_id])):
            return
        if await self.get_many([memory_id]):
            await self._enqueue([_outgoing(memory_id, removal)])

    async def _enqueue(self, writes: Iterable[Outgoing]) -> None:
        await asyncio.to_thread(self.queue.append, list(writes), self._clock.now())

    # The snapshot

    async def state(self) -> SnapshotState:
        return await self._database.read(snapshot_state)

    async def shared(self) -> Collection[str]:
        """The ids of the team's memories in the file."""
        return await self._database.read(team_rows)

    async def begin(self, source: str) -> None:
        """Prepare for a snapshot of the store named `source`. If the file has one of another store,
        that team is left, because the new one must not receive its writes."""
        former = (await self.state()).source
        if former == source:
            return
        if former:
            await self.leave()
        sql = "UPDATE team_snapshot SET source = ?"
        await self._database.write(lambda db: db.execute(sql, (source,)) and None)

    async def leave(self) -> int:
        """Remove the team's memories and the waiting writes. The memories that these would have
        stored stay on this machine. Returns the number of removed memories."""
        waiting = [entry.write.id for entry in await self._waiting()]
        await self._database.write(partial(remove_team_rows, ids=waiting))
        await asyncio.to_thread(self.queue.clear)
        removed = await self._drop(await self._database.read(team_rows))
        sql = "UPDATE team_snapshot SET source = '', etag = '', checked_at = 0"
        await self._database.write(lambda db: db.execute(sql) and None)
        return removed

    async def refresh(self, team: TeamMemories) -> bool:
        """Bring the snapshot up to date. Returns whether it has changed. Raises StoreError if a
        store failed, or the team's store is another one than at `begin()`."""
        state = await self.state()
        latest = await team.snapshot(state.etag)
        if latest is not None:
            if latest.source != state.source:
                raise StoreError("the team's store has been replaced", hint="run `upwell doctor`")
            await self._replace(latest.memories)
        sql = "UPDATE team_snapshot SET etag = ?, checked_at = ?"
        values = (latest.etag if latest else state.etag, self._clock.now())
        await self._database.write(lambda db: db.execute(sql, values) and None)
        return latest is not None

    async def _replace(self, memories: Sequence[Memory]) -> None:
        """Store what differs in a new snapshot. If the process is killed in between, the ETag is
        still the old one, so the next refresh reads the snapshot again."""
        copied = await self._database.read(team_rows)
        waiting = {entry.write.id for entry in await self._waiting()}
        await self._drop(copied.difference([memory.id for memory in memories], waiting))
        changed: list[Memory] = []
        for batch in batched((m for m in memories if m.id not in waiting), CHUNK):
            look = partial(differing, memories=batch, copied=copied)
            changed += await self._database.read(look)
        loop = asyncio.get_running_loop()
        for batch in batched(changed, BATCH):
            began = loop.time()
            await self._database.write(partial(store_snapshot, memories=batch))
            await asyncio.sleep((loop.time() - began) * (1 / BUSY_SHARE - 1))
        if changed:
            await self.measure({memory.project for memory in changed})

    async def _drop(self, ids: Collection[str]) -> int:
        if not ids:
            return 0
        removed = await self._database.write(partial(drop_team_rows, ids=ids))
        self._has_removed |= removed > 0
        return removed

    async def _waiting(self) -> Sequence[QueuedWrite]:
        return await asyncio.to_thread(self.queue.read)


def _prepared(memory: Memory) -> Memory:
    return for_team(memory) if is_for_team(memory) else memory


def _can_leave(memory: Memory) -> bool:
    is_of_a_folder = memory.project is not None and memory.project.startswith("/")
    return not is_of_a_folder and not memory.namespace.startswith(PRIVATE)


def _outgoing(id: str, content: Memory | Removal) -> Outgoing:
    return Outgoing(secrets.token_hex(16), id, content)
