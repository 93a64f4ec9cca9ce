"""The copy of a team's memories in a developer's own `memory.db`, and the queue of writes to send
to the team's store.

A copied memory is a row of `memory` like any other, so one search finds it together with the
developer's own memories, without network access. `team_memory` lists the memories copied from the
team and those shared with it.

SQLite triggers put each write to a shared memory into the outbox, in the same transaction as the
write. Only the upkeep of the copy bypasses the triggers. If a process dies, the write and its entry
in the outbox are either both stored or both lost. An entry contains the memory's id but not its
content, so several changes to one memory are sent once.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from upwell.ground.sqlite.database import Owner
from upwell.ground.sqlite.readable import DamagedFile
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.ground.types.principal import PRIVATE
from upwell.memory.sqlite.rows import by_id, marks, number_of
from upwell.memory.sqlite.writing import insert, remove
from upwell.memory.team.base import VIEW, ChangePage, Cursor, Outgoing, Removal, SharedChange

USED_SECONDS = 86_400.0
"""The time of a project's last use is updated at most once in this many seconds."""
_IS_SHARED = """
    NEW.project NOT GLOB '/*' AND (
        (NEW.namespace = 'team' OR NEW.namespace GLOB 'team/*')
            AND NEW.trust IN ('user', 'imported')
        OR EXISTS (SELECT 1 FROM team_memory WHERE id = NEW.id))"""
_QUEUE = """
    INSERT OR REPLACE INTO outbox (id, token, at)
    VALUES ({id}, lower(hex(randomblob(16))), CAST(strftime('%s', 'now') AS REAL));"""


def create(db: sqlite3.Connection) -> None:
    """Create the tables and the triggers."""
    for statement in (
        """CREATE TABLE team (
            one INTEGER PRIMARY KEY CHECK (one = 1), is_copying INTEGER NOT NULL DEFAULT 0,
            source TEXT NOT NULL DEFAULT '', checked_at REAL NOT NULL DEFAULT 0)""",
        "INSERT INTO team (one) VALUES (1)",
        """CREATE TABLE team_project (
            project TEXT PRIMARY KEY, version INTEGER NOT NULL DEFAULT -1,
            after TEXT NOT NULL DEFAULT '', is_complete INTEGER NOT NULL DEFAULT 0,
            used_at REAL NOT NULL) WITHOUT ROWID""",
        "CREATE TABLE team_memory (id TEXT PRIMARY KEY, project TEXT NOT NULL) WITHOUT ROWID",
        "CREATE INDEX team_memory_project ON team_memory (project)",
        """CREATE TABLE outbox (
            id TEXT PRIMARY KEY, token TEXT NOT NULL, at REAL NOT NULL,
            error TEXT NOT NULL DEFAULT '') WITHOUT ROWID""",
        f"""CREATE TRIGGER team_stored AFTER INSERT ON memory
            WHEN NEW.tenant = '{DEFAULT_TENANT}' AND NOT (SELECT is_copying FROM team)
                AND ({_IS_SHARED})
            BEGIN
                {_QUEUE.format(id="NEW.id")}
                INSERT OR REPLACE INTO team_memory VALUES (NEW.id, NEW.project);
                INSERT OR IGNORE INTO team_project (project, used_at)
                VALUES (NEW.project, CAST(strftime('%s', 'now') AS REAL));
            END""",
        f"""CREATE TRIGGER team_removed AFTER DELETE ON memory
            WHEN OLD.tenant = '{DEFAULT_TENANT}' AND NOT (SELECT is_copying FROM team)
                AND EXISTS (SELECT 1 FROM team_memory WHERE id = OLD.id)
                AND (OLD.expires_at IS NULL OR OLD.expires_at > strftime('%s', 'now'))
            BEGIN {_QUEUE.format(id="OLD.id")} END""",
    ):
        db.execute(statement)


def _salvage(source: DamagedFile, fresh: sqlite3.Connection) -> int:
    """Salvage the copy's tables from a damaged file. The memories are already in the fresh file.
    Storing them there has queued the team's memories for sending, so the outbox is emptied first.
    Every project is copied again, because memories may be missing."""
    from upwell.ground.sqlite.salvage import copy_table

    tables = ("team", "team_project", "team_memory", "outbox")
    if fresh.execute("SELECT 1 FROM team WHERE source = ''").fetchone():  # not salvaged yet
        for table in tables:
            fresh.execute(f"DELETE FROM {table}")
    saved = sum(copy_table(source, fresh, table) for table in tables)
    fresh.execute("INSERT OR IGNORE INTO team (one) VALUES (1)")
    fresh.execute("UPDATE team_project SET version = -1, after = '', is_complete = 0")
    return saved


OWNER = Owner("team", (create,), _salvage)
"""The copy's tables in a database file."""


class CopyState(Struct, frozen=True):
    """What a copy contains. `checked_at` is the last time when the copy was known to be up to date,
    in epoch seconds (0: never). `is_complete` is True if every project has been copied completely.
    `waiting` is the number of unsent writes, and `waiting_since` is the time of the oldest.
    `refused` is the team store's reason for rejecting one of them, or "" if it has rejected
    none."""

    memories: int
    projects: int
    checked_at: float
    is_complete: bool
    waiting: int
    waiting_since: float
    refused: str


def state(db: sqlite3.Connection) -> CopyState:
    (memories,) = db.execute("SELECT count(*) FROM team_memory").fetchone()
    projects, complete = db.execute(
        "SELECT count(nullif(project, '')), coalesce(min(is_complete), 0) FROM team_project"
    ).fetchone()
    (checked_at,) = db.execute("SELECT checked_at FROM team").fetchone()
    waiting, since, refused = db.execute(
        "SELECT count(*), coalesce(min(at), 0), coalesce(max(error), '') FROM outbox"
    ).fetchone()
    return CopyState(memories, projects, checked_at, bool(complete), waiting, since, refused)


def begin(db: sqlite3.Connection, source: str, now: float) -> None:
    """Prepare the copy of a store. If the file has a copy of another store, that copy is removed,
    and so are the writes queued for it, because the new store must not receive them. If the
    store is the same, but this machine may now see other parts of it, the copy starts from scratch,
    and the queued writes are kept."""
    (former,) = db.execute("SELECT source FROM team").fetchone()
    if former == source:
        return
    if former.partition(VIEW)[0] == source.partition(VIEW)[0]:
        for cursor in cursors(db):
            _drop(db, _copied(db, cursor.project))
        db.execute("UPDATE team_project SET version = -1, after = '', is_complete = 0")
    elif former:
        waiting = [row[0] for row in db.execute("SELECT id FROM outbox")]
        db.execute("DELETE FROM outbox")
        db.executemany("DELETE FROM team_memory WHERE id = ?", [(id,) for id in waiting])
        _drop(db, [row[0] for row in db.execute("SELECT id FROM team_memory")])
        db.execute("DELETE FROM team_project")
    db.execute("UPDATE team SET source = ?, checked_at = 0", (source,))
    use(db, [""], now)


def use(db: sqlite3.Connection, projects: Iterable[str], now: float) -> None:
    """Add these projects to the copy, and record that they are in use."""
    db.executemany(
        "INSERT INTO team_project (project, used_at) VALUES (?, ?) ON CONFLICT (project) "
        "DO UPDATE SET used_at = excluded.used_at WHERE used_at < excluded.used_at - ?",
        [(project, now, USED_SECONDS) for project in projects],
    )


def leave_unused(db: sqlite3.Connection, before: float) -> None:
    """Remove the copies of projects that were last used before the time `before`."""
    for (project,) in db.execute(
        "SELECT project FROM team_project WHERE used_at < ? AND project != ''", (before,)
    ).fetchall():
        _drop(db, _copied(db, project))
        db.execute("DELETE FROM team_project WHERE project = ?", (project,))


def cursors(db: sqlite3.Connection) -> list[Cursor]:
    rows = db.execute("SELECT project, version, after FROM team_project ORDER BY project")
    return [Cursor(*row) for row in rows]


def take(db: sqlite3.Connection, page: ChangePage) -> int:
    """Apply a page of changes. A change is skipped if its memory has an unsent change here, or if
    its id happens to belong to one of the developer's own memories. Returns the number of removed
    memories."""
    project = page.cursor.project
    row = db.execute("SELECT version FROM team_project WHERE project = ?", (project,)).fetchone()
    if row is None:
        return 0
    ids = [change.id for change in page.changes]
    skipped = _among(db, "SELECT id FROM outbox", ids)
    skipped |= _among(db, "SELECT id FROM memory", ids) - _among(
        db, "SELECT id FROM team_memory", ids
    )
    changes = [change for change in page.changes if change.id not in skipped]
    gone = [change.id for change in changes if change.memory is None]
    if page.cursor.version < row[0]:
        # With a lower version, the store tells the copy to start again.
        gone += _copied(db, project)
    removed = _drop(db, [id for id in gone if _is_copy_of(db, id, project)])
    _store(db, changes, project)
    db.execute(
        "UPDATE team_project SET version = ?, after = ?, is_complete = is_complete OR ? "
        "WHERE project = ?",
        (page.cursor.version, page.cursor.after, page.is_last, project),
    )
    return removed


def _store(db: sqlite3.Connection, changes: Sequence[SharedChange], project: str) -> None:
    memories = [change.memory for change in changes if change.memory is not None]
    db.execute("UPDATE team SET is_copying = 1")
    insert(db, memories)
    db.execute("UPDATE team SET is_copying = 0")
    db.executemany(
        "INSERT OR REPLACE INTO team_memory VALUES (?, ?)", [(m.id, project) for m in memories]
    )
    # A memory that the team has restored must leave the trash in this file.
    db.executemany("DELETE FROM trash WHERE id = ?", [(m.id,) for m in memories])


def _drop(db: sqlite3.Connection, ids: Sequence[str]) -> int:
    db.execute("UPDATE team SET is_copying = 1")
    removed = 0
    for id in ids:
        n = number_of(db, DEFAULT_TENANT, id)
        if n is not None:
            remove(db, n)
            removed += 1
        db.execute("DELETE FROM team_memory WHERE id = ?", (id,))
    db.execute("UPDATE team SET is_copying = 0")
    return removed


def _copied(db: sqlite3.Connection, project: str) -> list[str]:
    rows = db.execute(
        "SELECT id FROM team_memory WHERE project = ? AND id NOT IN (SELECT id FROM outbox)",
        (project,),
    )
    return [row[0] for row in rows]


def _is_copy_of(db: sqlite3.Connection, id: str, project: str) -> bool:
    """Return whether the memory was copied from this project. After a memory has moved to another
    project, its former project reports it as removed, but the memory must stay."""
    row = db.execute("SELECT project FROM team_memory WHERE id = ?", (id,)).fetchone()
    return row is not None and row[0] == project


def _among(db: sqlite3.Connection, select: str, ids: Sequence[str]) -> set[str]:
    rows = db.execute(f"{select} WHERE id IN ({marks(ids)})", ids)
    return {row[0] for row in rows}


def outgoing(
    db: sqlite3.Connection, limit: int, *, again: bool, tried: Collection[str] = ()
) -> list[Outgoing]:
    """Return the unsent writes, except those with the tokens `tried`. Writes that the store has
    rejected come last, and are included only if `again` is True."""
    rows = db.execute(
        "SELECT id, token FROM outbox WHERE (error = '' OR ?) "
        "AND token NOT IN (SELECT value FROM json_each(?)) ORDER BY error, at, id LIMIT ?",
        (again, json.dumps(list(tried)), limit),
    ).fetchall()
    memories = by_id(db, DEFAULT_TENANT, [id for id, _ in rows])
    trashed = _among(db, "SELECT id FROM trash", [id for id, _ in rows])
    writes = []
    for id, token in rows:
        memory = memories.get(id)
        if memory is not None and not memory.namespace.startswith(PRIVATE):
            writes.append(Outgoing(token, id, memory))
        else:
            kept = memory is not None or id in trashed
            writes.append(Outgoing(token, id, Removal.TRASH if kept else Removal.PURGE))
    return writes


def sent(db: sqlite3.Connection, writes: Sequence[Outgoing]) -> None:
    """Remove delivered writes from the outbox. If a memory has changed since it was sent, the
    outbox has another token for it, and the new write is kept."""
    for write in writes:
        done = db.execute(
            "DELETE FROM outbox WHERE id = ? AND token = ?", (write.id, write.token)
        ).rowcount
        if done and isinstance(write.content, Removal):
            db.execute("DELETE FROM team_memory WHERE id = ?", (write.id,))


def refuse(db: sqlite3.Connection, write: Outgoing, error: str) -> None:
    """Record why the team's store rejected a write."""
    db.execute("UPDATE outbox SET error = ? WHERE token = ?", (error, write.token))
