"""The snapshot of a team's memories in a developer's own `memory.db`.

A team's memory is a row of `memory` like any other, so one search finds it together with the
developer's own memories, without network access. `team_row` lists the ids of these rows. Their
contents come from the latest snapshot and from the writes that wait in the queue
(`memory/team/exchange.py`).
"""

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.sqlite.database import Owner
from upwell.ground.sqlite.file import DamagedFile
from upwell.ground.types.memory import DEFAULT_TENANT, Memory
from upwell.ground.types.rpc import PRIVATE
from upwell.memory.sqlite.rows import by_id, insert, marks, number_of, remove
from upwell.memory.team.exchange import Outgoing, Removal, WriteQueue


def owner(queue: WriteQueue) -> Owner:
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


def state(db: sqlite3.Connection) -> SnapshotState:
    sql = "SELECT source, etag, checked_at, (SELECT count(*) FROM team_row) FROM team_snapshot"
    return SnapshotState(*db.execute(sql).fetchone())


def rows(db: sqlite3.Connection) -> set[str]:
    """Return the ids of the team's memories in the file."""
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


def store(db: sqlite3.Connection, memories: Sequence[Memory]) -> None:
    """Store memories of a snapshot."""
    insert(db, memories)
    add_rows(db, [memory.id for memory in memories])
    # A memory that the team has restored must leave the trash in this file.
    db.executemany("DELETE FROM trash WHERE id = ?", [(memory.id,) for memory in memories])


def drop(db: sqlite3.Connection, ids: Iterable[str]) -> int:
    """Remove memories that the team no longer has. Returns how many the file had."""
    removed = 0
    for id in ids:
        n = number_of(db, DEFAULT_TENANT, id)
        if n is not None:
            remove(db, n)
            removed += 1
        db.execute("DELETE FROM team_row WHERE id = ?", (id,))
    return removed


def add_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Note that these memories are the team's."""
    db.executemany("INSERT OR IGNORE INTO team_row VALUES (?)", [(id,) for id in ids])


def remove_rows(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Note that these memories are the developer's own from now on."""
    db.executemany("DELETE FROM team_row WHERE id = ?", [(id,) for id in ids])


def rows_among(db: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Return which of these memories are the team's."""
    found = db.execute(f"SELECT id FROM team_row WHERE id IN ({marks(ids)})", ids)
    return {id for (id,) in found}
