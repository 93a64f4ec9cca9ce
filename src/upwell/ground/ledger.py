"""The tables of `ledger.db`: `shelf`, with the entries of the TTL store, and `event`, with one row
for each decision and each shortened result.

The TTL store contains entries that expire, such as the originals of shortened results, the seen
log (which memories each session was given), and cached responses. Losing an entry must do no harm;
durable data belongs in `memory.db`. Every entry has a kind and a time to live. A kind may have a
cap in bytes, beyond which the oldest entries are evicted. The entries are rows in `ledger.db`,
shared by all processes that use the home, or in this process's memory, for data that must not or
cannot be written to disk.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.sqlite.database import Database, DatabaseInMemory, Owner
from upwell.ground.sqlite.file import OpenPlan, prepare_read_only
from upwell.ground.text.words import counted
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.ground.types.rpc import Ping

FIGURES = ("times", "memories", "tokens", "before", "after", "late")
"""The columns of `event` that are added up."""
PLACE = ("kind", "host", "project", "session", "door", "tool", "outcome")
"""The columns of `event` by which figures are grouped."""


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE shelf (
            tenant TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL, expires_at REAL NOT NULL,
            PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX shelf_expiry ON shelf (expires_at)")


def _change_nothing(db: sqlite3.Connection) -> None:
    """Stand for two migrations between 0.2.0 and this version that undid each other."""


def _add_events(db: sqlite3.Connection) -> None:
    """Create the table `event`. A row without `data` has only figures: it stands for `times` events
    that are not listed one by one. The counters of 0.2.0 become such rows."""
    texts = "".join(f"{name} TEXT NOT NULL DEFAULT '', " for name in PLACE[1:])
    figures = "".join(f"{name} INTEGER NOT NULL DEFAULT 0, " for name in FIGURES)
    db.execute(
        "CREATE TABLE event (id TEXT PRIMARY KEY, kind TEXT NOT NULL, at REAL NOT NULL, "
        f"written REAL NOT NULL, {texts}{figures}file TEXT, step TEXT, queries TEXT, data TEXT)"
    )
    db.execute("CREATE INDEX event_written ON event (written)")
    db.execute("CREATE INDEX event_cut ON event (written) WHERE kind = 'compressed'")
    names = ", ".join(PLACE)
    for key, number in db.execute("SELECT key, number FROM shelf WHERE kind = 'count'").fetchall():
        day, kind, door, tool, outcome = key.split("\t")
        if kind != "compressed":
            place = (kind, "", "", "", door, tool, outcome)
            db.execute(
                f"INSERT INTO event (id, at, written, {names}, times) "
                "VALUES (?, unixepoch(?), unixepoch(?), ?, ?, ?, ?, ?, ?, ?, ?)",
                ("\t".join((day, *place)), day, day, *place, number),
            )
    db.execute("DELETE FROM shelf WHERE kind IN ('decision', 'query', 'count')")


OWNER = Owner("shelf", [_create, _change_nothing, _change_nothing, _add_events], expendable=True)


def copied_in_memory(path: Path) -> DatabaseInMemory:
    """Copy a file that cannot be written. Originals are left out because of their size."""
    database = DatabaseInMemory([OWNER])
    plan = OpenPlan(path, (OWNER,), "NORMAL", is_read_only=True)
    with closing(prepare_read_only(plan)) as db:
        for selection in ("shelf WHERE kind != 'original'", "event"):
            rows = db.execute(f"SELECT * FROM {selection}").fetchall()
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                table = selection.split()[0]
                database.connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    return database


class EntryKind(StrEnum):
    """The kinds of entries, each with one owner. Never change a value, because it is a key on
    disk."""

    CHORE = "chore"
    COMPACTION = "compacted"
    COMPRESSION_REMARK = "compression_missing"
    COMPRESSION_REPORT = "compression_feedback"
    CUT = "cut"
    HOST_SESSION = "host_session"
    LEARNED = "learned"
    LESSON = "lesson"
    OPENING = "opening"
    ORIGINAL = "original"
    PASSAGE = "passage"
    PLACE = "place"
    RECEIVED = "received"
    RESPONSE = "response"
    REVIEWED = "reviewed"
    RULES = "rules"
    SEEN = "seen"
    TUNE = "tune"
    USE = "use"
    WATCHED = "watched"
    WAY = "way"


class Item(Struct, frozen=True, kw_only=True):
    """One entry of a TTL store. `put()` sets `value`, and `incr()` adds to `number`. Times are in
    epoch seconds."""

    key: str
    value: bytes = b""
    number: int = 0
    created_at: float = 0.0
    expires_at: float = 0.0


class Entries(Struct, frozen=True):
    """Values of one kind, by key, and their time to live."""

    kind: str
    values: Mapping[str, bytes]
    ttl_seconds: float


_CHECKS_PER_CAP = 50
"""The size of a kind is measured each time a fiftieth of its cap has been written. One process
therefore exceeds the cap only slightly.
"""


_PAGE_BYTES = 4096
_LOCAL_BYTES = 900
_ROW_BYTES = 90


def file_bytes(size: int) -> int:
    """Estimate the space that an entry takes in the file if its key and value have `size` bytes.

    Keys are random, so B-tree pages are about two thirds full. A payload that is too large for its
    page takes whole overflow pages (sqlite.org/fileformat2.html, section 1.6).
    """
    if size <= _LOCAL_BYTES:
        return (size + _ROW_BYTES) * 3 // 2
    return (size // _PAGE_BYTES + 1) * _PAGE_BYTES + _LOCAL_BYTES


class TtlStore:
    """A store of expiring entries: in `database`, or in this process's memory. `caps` maps a kind
    to its cap in bytes; other kinds have no cap.

    Callers choose kinds and keys. Apart from `drop()` and `ping()`, methods treat an expired entry
    as absent, even if `expire()` has not removed it yet. Most methods raise `StoreError` if the
    database fails.
    """

    def __init__(
        self,
        database: Database | DatabaseInMemory | None = None,
        *,
        caps: Mapping[str, int] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.database = database or DatabaseInMemory([OWNER])
        self._caps = caps or {}
        self._clock = clock
        self._unmeasured: dict[str, int] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        """Return the entries that exist for `keys`, by key."""
        if not keys:
            return {}
        now = self._clock.now()
        marks = ",".join("?" * len(keys))

        def look(db: sqlite3.Connection) -> dict[str, Item]:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM shelf WHERE tenant = ? "
                f"AND kind = ? AND expires_at > ? AND key IN ({marks})",
                (DEFAULT_TENANT, kind, now, *keys),
            )
            return {item.key: item for item in _items(rows)}

        return await self.database.inline_read(look)

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        """Set the value of each key and restart its time to live."""
        await self.put_all(Entries(kind, values, ttl_seconds))

    async def put_all(self, *entries: Entries) -> None:
        """Like several `put()` calls, but in one step."""
        now = self._clock.now()

        def store(db: sqlite3.Connection) -> None:
            for group in entries:
                for key, value in group.values.items():
                    self._upsert(db, group.kind, key, value, now, group.ttl_seconds)
                self._enforce_cap(db, group.kind, group.values)

        await self.database.write_grouped(store)

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
        """Set `key` to `value` if the current value is `expected`. None means that the key must be
        absent.

        Returns whether the value was set. If several processes race with the same `expected`,
        exactly one of them succeeds, provided that no `value` equals `expected`.
        """
        now = self._clock.now()

        def exchange(db: sqlite3.Connection) -> bool:
            # After BEGIN IMMEDIATE, no other process writes between the statements.
            row = db.execute(
                "SELECT value FROM shelf WHERE tenant = ? AND kind = ? AND key = ? "
                "AND expires_at > ?",
                (DEFAULT_TENANT, kind, key, now),
            ).fetchone()
            if (row[0] if row else None) != expected:
                return False
            self._upsert(db, kind, key, value, now, ttl_seconds)
            self._enforce_cap(db, kind, {key: value})
            return True

        return await self.database.write_grouped(exchange)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        """Restart the time to live of `key`. Returns False if the key is absent."""
        now = self._clock.now()
        renew = "UPDATE shelf SET expires_at = ? WHERE tenant = ? AND kind = ? AND key = ? "
        values = (now + ttl_seconds, DEFAULT_TENANT, kind, key, now)
        return await self._changed(f"{renew}AND expires_at > ?", values) > 0

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        """Add to the number of each key, starting from zero, and restart its time to live."""
        now = self._clock.now()

        def add(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT INTO shelf (tenant, kind, key, number, created_at, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, key) DO UPDATE SET "
                "number = CASE WHEN shelf.expires_at > excluded.created_at "
                "THEN shelf.number ELSE 0 END + excluded.number, "
                # Of an expired entry, nothing comes back.
                + "".join(
                    f"{name} = CASE WHEN shelf.expires_at > excluded.created_at "
                    f"THEN shelf.{name} ELSE excluded.{name} END, "
                    for name in ("value", "created_at")
                )
                + "expires_at = excluded.expires_at",
                [
                    (DEFAULT_TENANT, kind, key, amount, now, now + ttl_seconds)
                    for key, amount in by.items()
                ],
            )

        await self.database.write_grouped(add)

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        """Return the entries whose key begins with `prefix`, oldest first."""
        now = self._clock.now()
        condition, values = _having(prefix)

        def look(db: sqlite3.Connection) -> list[Item]:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM shelf WHERE tenant = ? "
                f"AND kind = ? AND expires_at > ? {condition} ORDER BY created_at",
                (DEFAULT_TENANT, kind, now, *values),
            )
            return list(_items(rows))

        # Keys with the same prefix usually belong to one session or memory, so they are few.
        return await (self.database.inline_read if prefix else self.database.read)(look)

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        """Remove these keys. Returns the number of keys that were present."""
        if not keys:
            return 0
        now = self._clock.now()
        marks = ",".join("?" * len(keys))
        listed = f"tenant = ? AND kind = ? AND expires_at > ? AND key IN ({marks})"
        return await self._changed(
            f"DELETE FROM shelf WHERE {listed}", (DEFAULT_TENANT, kind, now, *keys)
        )

    async def drop(self, kind: str, prefix: str = "") -> int:
        """Remove all entries whose key begins with `prefix`, even expired ones. Returns the number
        of removed entries.
        """
        condition, values = _having(prefix)
        return await self._changed(
            f"DELETE FROM shelf WHERE tenant = ? AND kind = ? {condition}",
            (DEFAULT_TENANT, kind, *values),
        )

    async def expire(self) -> int:
        """Remove all expired entries. Returns the number of removed entries."""
        return await self._changed("DELETE FROM shelf WHERE expires_at <= ?", (self._clock.now(),))

    async def _changed(self, sql: str, values: Sequence[object]) -> int:
        return await self.database.write_grouped(lambda db: db.execute(sql, values).rowcount)

    async def ping(self) -> Ping:
        """Report the number of entries, including expired ones."""
        await self.database.look_for_damage()
        count = await self.database.read(
            lambda db: db.execute("SELECT count(*) FROM shelf").fetchone()[0]
        )
        where = " in memory" if isinstance(self.database, DatabaseInMemory) else ""
        return Ping(ok=True, detail=f"{counted(count, 'entry', 'entries')}{where}")

    def _upsert(
        self,
        db: sqlite3.Connection,
        kind: str,
        key: str,
        value: bytes,
        now: float,
        ttl_seconds: float,
    ) -> None:
        db.execute(
            "INSERT INTO shelf (tenant, kind, key, value, created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, key) DO UPDATE SET "
            "number = CASE WHEN shelf.expires_at > excluded.created_at "
            "THEN shelf.number ELSE 0 END, "
            "value = excluded.value, created_at = excluded.created_at, "
            "expires_at = excluded.expires_at",
            (DEFAULT_TENANT, kind, key, value, now, now + ttl_seconds),
        )

    def _enforce_cap(self, db: sqlite3.Connection, kind: str, values: Mapping[str, bytes]) -> None:
        cap = self._caps.get(kind)
        if cap is None:
            return
        # The bytes written since the kind was last measured, which reads all its sizes.
        unmeasured = self._unmeasured.get(kind, cap) + sum(map(len, values.values()))
        is_due = unmeasured * _CHECKS_PER_CAP >= cap
        self._unmeasured[kind] = 0 if is_due else unmeasured
        if not is_due:
            return
        rows = db.execute(
            "SELECT key, length(key) + length(value) FROM shelf WHERE tenant = ? AND kind = ? "
            "ORDER BY created_at DESC, key",
            (DEFAULT_TENANT, kind),
        ).fetchall()
        total_bytes = 0
        for key, size in rows:
            total_bytes += file_bytes(size)
            if total_bytes > cap:
                db.execute(
                    "DELETE FROM shelf WHERE tenant = ? AND kind = ? AND key = ?",
                    (DEFAULT_TENANT, kind, key),
                )


def _having(prefix: str) -> tuple[str, tuple[str | bytes, ...]]:
    """Return a condition for keys that begin with `prefix`, and its values. SQLite looks up a range
    in the primary key. With `substr(key, …) = …`, it would read every key of the kind."""
    # No byte of UTF-8 is 0xff, so every key with the prefix sorts below the prefix plus 0xff.
    after = prefix.encode(errors="surrogatepass") + b"\xff"
    return ("AND key >= ? AND key < CAST(? AS TEXT)", (prefix, after)) if prefix else ("", ())


_COLUMNS = "key, value, number, created_at, expires_at"


def _items(rows: Iterable[Sequence[Any]]) -> Iterator[Item]:
    for key, value, number, created_at, expires_at in rows:
        yield Item(
            key=key, value=value, number=number, created_at=created_at, expires_at=expires_at
        )
