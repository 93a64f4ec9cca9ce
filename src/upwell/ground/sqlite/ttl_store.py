"""The TTL store of one home: rows in `ledger.db`, shared by all processes that use the home."""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.sqlite.database import Database, Owner
from upwell.ground.sqlite.file import OpenPlan, prepare_read_only
from upwell.ground.text.format import counted
from upwell.ground.ttl_store import (
    Entries,
    EntryKind,
    Item,
    MemoryTtlStore,
    TtlOptions,
    TtlStore,
    file_bytes,
    is_due,
)
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.ground.types.rpc import Ping


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE shelf (
            tenant TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL, expires_at REAL NOT NULL,
            PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX shelf_expiry ON shelf (expires_at)")


def _add_sum(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE shelf ADD COLUMN sum INTEGER")


def _drop_sum(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE shelf DROP COLUMN sum")


_SORTED_ENTRIES = 1_000
"""A kind with fewer entries is sorted completely to find the newest entries."""
OWNER = Owner("shelf", [_create, _add_sum, _drop_sum], expendable=True)


class SqliteTtlStore(TtlStore):
    """A TTL store in `ledger.db`."""

    def __init__(
        self,
        database: Database,
        *,
        options: TtlOptions | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._database = database
        self._options = options or TtlOptions()
        self._clock = clock
        self._unchecked: dict[str, int] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
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

        return await self._database.inline_read(look)

    async def put_all(self, *entries: Entries) -> None:
        now = self._clock.now()

        def store(db: sqlite3.Connection) -> None:
            for group in entries:
                for key, value in group.values.items():
                    self._upsert(db, group.kind, key, value, now, group.ttl_seconds)
                self._enforce_cap(db, group.kind, group.values)

        await self._database.write_grouped(store)

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
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

        return await self._database.write_grouped(exchange)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        now = self._clock.now()

        def renew(db: sqlite3.Connection) -> bool:
            cursor = db.execute(
                "UPDATE shelf SET expires_at = ? WHERE tenant = ? AND kind = ? AND key = ? "
                "AND expires_at > ?",
                (now + ttl_seconds, DEFAULT_TENANT, kind, key, now),
            )
            return cursor.rowcount > 0

        return await self._database.write_grouped(renew)

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
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

        await self._database.write_grouped(add)

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
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
        return await (self._database.inline_read if prefix else self._database.read)(look)

    async def newest(
        self, kind: str, *, limit: int, before: float = math.inf, holding: Sequence[bytes] = ()
    ) -> list[Item]:
        now = self._clock.now()
        contained = "AND instr(value, ?) " * len(holding)

        def look(db: sqlite3.Connection) -> list[Item]:
            # All entries of a kind have the same time to live, so they expire in the order in which
            # they were written. The `+` makes SQLite use the index on expiry instead of sorting the
            # whole kind. A kind with few entries is sorted, because most of the index belongs
            # to other kinds.
            (number,) = db.execute(
                "SELECT count(*) FROM (SELECT 1 FROM shelf WHERE tenant = ? AND kind = ? LIMIT ?)",
                (DEFAULT_TENANT, kind, _SORTED_ENTRIES),
            ).fetchone()
            sign, tie = ("+", "") if number == _SORTED_ENTRIES else ("", ", key DESC")
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM shelf WHERE {sign}tenant = ? "
                f"AND {sign}kind = ? AND expires_at > ? AND created_at < ? "
                f"{contained}ORDER BY expires_at DESC{tie} LIMIT ?",
                (DEFAULT_TENANT, kind, now, before, *holding, limit),
            )
            return list(_items(rows))

        return await self._database.read(look)

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        if not keys:
            return 0
        now = self._clock.now()
        marks = ",".join("?" * len(keys))
        return await self._database.write_grouped(
            lambda db: (
                db.execute(
                    "DELETE FROM shelf WHERE tenant = ? AND kind = ? AND expires_at > ? "
                    f"AND key IN ({marks})",
                    (DEFAULT_TENANT, kind, now, *keys),
                ).rowcount
            )
        )

    async def drop(self, kind: str, prefix: str = "") -> int:
        condition, values = _having(prefix)
        return await self._database.write_grouped(
            lambda db: (
                db.execute(
                    f"DELETE FROM shelf WHERE tenant = ? AND kind = ? {condition}",
                    (DEFAULT_TENANT, kind, *values),
                ).rowcount
            )
        )

    async def expire(self) -> int:
        now = self._clock.now()
        return await self._database.write_grouped(
            lambda db: db.execute("DELETE FROM shelf WHERE expires_at <= ?", (now,)).rowcount
        )

    async def ping(self) -> Ping:
        await self._database.look_for_damage()
        count = await self._database.read(
            lambda db: db.execute("SELECT count(*) FROM shelf").fetchone()[0]
        )
        return Ping(ok=True, detail=counted(count, "entry", "entries"))

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
        cap = self._options.max_bytes.get(kind)
        if cap is not None and is_due(self._unchecked, kind, values, cap):
            self._evict(db, kind, cap)

    def _evict(self, db: sqlite3.Connection, kind: str, cap: int) -> None:
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


def copy_in_memory(path: Path, options: TtlOptions, clock: Clock) -> MemoryTtlStore:
    """Return a store in memory with the entries from a file that cannot be written. New entries
    last as long as this process. Originals are left out because of their size.
    """
    plan = OpenPlan(path, (OWNER,), "NORMAL", is_read_only=True)
    with closing(prepare_read_only(plan)) as db:
        kinds = db.execute(
            "SELECT DISTINCT kind FROM shelf WHERE kind != ?", (str(EntryKind.ORIGINAL),)
        ).fetchall()
        store = MemoryTtlStore(options=options, clock=clock)
        for (kind,) in kinds:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM shelf WHERE kind = ? ORDER BY created_at", (kind,)
            )
            for item in _items(rows):
                store.insert(kind, item)
    return store
