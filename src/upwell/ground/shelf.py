"""The shelf: one place for things that expire — originals, seen memories, cached responses,
usage counters, rates.

What stands on it may be lost at any time without harm; what must not be lost is in `memory.db`.
Every entry belongs to a tenant and a kind, lives until its time is up, and each kind may have a
cap in bytes, beyond which the oldest go first.
"""

import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from upwell.ground.db import Database, Owner
from upwell.ground.limits import SYSTEM_CLOCK, Clock
from upwell.ground.text.counts import counted
from upwell.ground.types import DEFAULT_TENANT, Ping


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing on a shelf. `number` is what `incr` counts; `expires_at` epoch seconds."""

    key: str
    value: bytes = b""
    number: int = 0
    created_at: float = 0.0
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`max_bytes` per kind; a kind without one is not capped."""

    max_bytes: Mapping[str, int] = field(default_factory=dict)


class Shelf(Protocol):
    """Where expiring things stand. All keys are the caller's own strings."""

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        """Those of `keys` that are there and have not expired."""
        ...

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        """Set each key to its value, and its time of life anew."""
        ...

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        """Give `key` its time of life anew. False when it is not there."""
        ...

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        """Add to the numbers under these keys, from zero where there is none yet."""
        ...

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        """Everything of `kind` that is alive and whose key begins with `prefix`, oldest first."""
        ...

    async def drop(self, kind: str, prefix: str = "") -> int:
        """Remove what `scan` would give. Returns how many."""
        ...

    async def expire(self) -> int:
        """Remove what has had its time. Returns how many."""
        ...

    async def ping(self) -> Ping: ...


def _create(db: sqlite3.Connection) -> None:
    db.execute(
        """CREATE TABLE shelf (
            tenant TEXT NOT NULL, kind TEXT NOT NULL, key TEXT NOT NULL,
            value BLOB NOT NULL DEFAULT x'', number INTEGER NOT NULL DEFAULT 0,
            created_at REAL NOT NULL, expires_at REAL NOT NULL,
            PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID"""
    )
    db.execute("CREATE INDEX shelf_expiry ON shelf (expires_at)")


OWNER = Owner("shelf", [_create])


_CHECKS = 50
"""How often the size of a kind is looked at while as much is written as it may hold: what one
process writes beyond the cap is a fiftieth of it at most."""


_PAGE_BYTES = 4096
_LOCAL_BYTES = 900
_ROW_BYTES = 90


def on_disk(size: int) -> int:
    """The bytes of a file that an entry of `size` takes, about: keys are random, so pages of the
    tree are two thirds full, and what does not fit in one of them takes whole pages of its own
    (sqlite.org/fileformat2.html, section 1.6)."""
    if size <= _LOCAL_BYTES:
        return (size + _ROW_BYTES) * 3 // 2
    return (size // _PAGE_BYTES + 1) * _PAGE_BYTES + _LOCAL_BYTES


class SqliteShelf:
    """A shelf in `ledger.db`, shared by every process of this home."""

    def __init__(
        self,
        database: Database,
        *,
        options: Options | None = None,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._database = database
        self._options = options or Options()
        self._tenant = tenant
        self._clock = clock
        self._unchecked: dict[str, int] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        if not keys:
            return {}
        now = self._clock.now()
        marks = ",".join("?" * len(keys))

        def look(db: sqlite3.Connection) -> dict[str, Item]:
            rows = db.execute(
                "SELECT key, value, number, created_at, expires_at FROM shelf WHERE tenant = ? "
                f"AND kind = ? AND expires_at > ? AND key IN ({marks})",
                (self._tenant, kind, now, *keys),
            )
            return {row[0]: _item(row) for row in rows}

        return await self._database.glance(look)

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        now = self._clock.now()
        cap = self._options.max_bytes.get(kind)

        def store(db: sqlite3.Connection) -> None:
            for key, value in values.items():
                db.execute(
                    "INSERT INTO shelf (tenant, kind, key, value, created_at, expires_at) "
                    "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, key) DO UPDATE SET "
                    "value = excluded.value, created_at = excluded.created_at, "
                    "expires_at = excluded.expires_at",
                    (self._tenant, kind, key, value, now, now + ttl_seconds),
                )
            if cap is not None and self._is_due(kind, values, cap):
                self._evict(db, kind, cap)

        await self._database.write(store)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        now = self._clock.now()

        def renew(db: sqlite3.Connection) -> bool:
            cursor = db.execute(
                "UPDATE shelf SET expires_at = ? WHERE tenant = ? AND kind = ? AND key = ? "
                "AND expires_at > ?",
                (now + ttl_seconds, self._tenant, kind, key, now),
            )
            return cursor.rowcount > 0

        return await self._database.write(renew)

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        now = self._clock.now()

        def add(db: sqlite3.Connection) -> None:
            db.executemany(
                "INSERT INTO shelf (tenant, kind, key, number, created_at, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, kind, key) DO UPDATE SET "
                "number = CASE WHEN shelf.expires_at > excluded.created_at "
                "THEN shelf.number ELSE 0 END + excluded.number, "
                "expires_at = excluded.expires_at",
                [
                    (self._tenant, kind, key, amount, now, now + ttl_seconds)
                    for key, amount in by.items()
                ],
            )

        await self._database.write(add)

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        now = self._clock.now()

        def look(db: sqlite3.Connection) -> list[Item]:
            rows = db.execute(
                "SELECT key, value, number, created_at, expires_at FROM shelf WHERE tenant = ? "
                "AND kind = ? AND expires_at > ? AND substr(key, 1, ?) = ? ORDER BY created_at",
                (self._tenant, kind, now, len(prefix), prefix),
            )
            return [_item(row) for row in rows]

        return await self._database.read(look)

    async def drop(self, kind: str, prefix: str = "") -> int:
        return await self._database.write(
            lambda db: (
                db.execute(
                    "DELETE FROM shelf WHERE tenant = ? AND kind = ? AND substr(key, 1, ?) = ?",
                    (self._tenant, kind, len(prefix), prefix),
                ).rowcount
            )
        )

    async def expire(self) -> int:
        now = self._clock.now()
        return await self._database.write(
            lambda db: db.execute("DELETE FROM shelf WHERE expires_at <= ?", (now,)).rowcount
        )

    async def ping(self) -> Ping:
        count = await self._database.read(
            lambda db: db.execute("SELECT count(*) FROM shelf").fetchone()[0]
        )
        return Ping(ok=True, detail=counted(count, "entry", "entries"))

    def _is_due(self, kind: str, values: Mapping[str, bytes], cap: int) -> bool:
        """Is it time to see whether there is too much? That looks at every entry."""
        known = kind in self._unchecked
        written = self._unchecked.get(kind, 0) + sum(map(len, values.values()))
        due = not known or written * _CHECKS >= cap
        self._unchecked[kind] = 0 if due else written
        return due

    def _evict(self, db: sqlite3.Connection, kind: str, cap: int) -> None:
        """Remove the oldest of `kind` until what is left fits in `cap` bytes."""
        rows = db.execute(
            "SELECT key, length(key) + length(value) FROM shelf WHERE tenant = ? AND kind = ? "
            "ORDER BY created_at DESC, key",
            (self._tenant, kind),
        ).fetchall()
        kept = 0
        for key, size in rows:
            kept += on_disk(size)
            if kept > cap:
                db.execute(
                    "DELETE FROM shelf WHERE tenant = ? AND kind = ? AND key = ?",
                    (self._tenant, kind, key),
                )


class MemoryShelf:
    """A shelf that lives and dies with the process: for what must not touch the disk."""

    def __init__(self, *, options: Options | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options or Options()
        self._clock = clock
        self._kinds: dict[str, OrderedDict[str, Item]] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        alive = self._alive(kind)
        return {key: alive[key] for key in keys if key in alive}

    async def put(self, kind: str, values: Mapping[str, bytes], *, ttl_seconds: float) -> None:
        now = self._clock.now()
        items = self._kinds.setdefault(kind, OrderedDict())
        for key, value in values.items():
            number = items[key].number if key in self._alive(kind) else 0
            items.pop(key, None)
            items[key] = Item(
                key=key,
                value=bytes(value),
                number=number,
                created_at=now,
                expires_at=now + ttl_seconds,
            )
        cap = self._options.max_bytes.get(kind)
        while cap is not None and sum(len(item.value) for item in items.values()) > cap:
            items.popitem(last=False)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        item = self._alive(kind).get(key)
        if item is None:
            return False
        self._kinds[kind][key] = replace(item, expires_at=self._clock.now() + ttl_seconds)
        return True

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        now = self._clock.now()
        alive = self._alive(kind)
        for key, amount in by.items():
            old = alive.get(key) or Item(key=key, created_at=now)
            self._kinds.setdefault(kind, OrderedDict())[key] = Item(
                key=key,
                value=old.value,
                number=old.number + amount,
                created_at=old.created_at,
                expires_at=now + ttl_seconds,
            )

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        found = [item for key, item in self._alive(kind).items() if key.startswith(prefix)]
        return sorted(found, key=lambda item: item.created_at)

    async def drop(self, kind: str, prefix: str = "") -> int:
        items = self._kinds.get(kind, OrderedDict())
        gone = [key for key in items if key.startswith(prefix)]
        for key in gone:
            del items[key]
        return len(gone)

    async def expire(self) -> int:
        gone = 0
        for kind in self._kinds:
            before = len(self._kinds[kind])
            self._kinds[kind] = OrderedDict(self._alive(kind))
            gone += before - len(self._kinds[kind])
        return gone

    async def ping(self) -> Ping:
        return Ping(
            ok=True,
            detail=f"{counted(sum(map(len, self._kinds.values())), 'entry', 'entries')} in memory",
        )

    def _alive(self, kind: str) -> dict[str, Item]:
        now = self._clock.now()
        items = self._kinds.get(kind, OrderedDict())
        return {key: item for key, item in items.items() if item.expires_at > now}


def _item(row: tuple[str, bytes, int, float, float]) -> Item:
    key, value, number, created_at, expires_at = row
    return Item(key=key, value=value, number=number, created_at=created_at, expires_at=expires_at)
