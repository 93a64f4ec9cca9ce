"""The TTL store shared by a team's machines: rows of `upwell.entry`."""

import hashlib
import math
from collections.abc import Mapping, Sequence

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import PROMPT_SECONDS, Postgres, Rows, Statement
from upwell.ground.text.format import counted
from upwell.ground.ttl_store import (
    LOCAL_KINDS,
    Entries,
    Item,
    Kind,
    Options,
    TtlStore,
    file_bytes,
    is_due,
)
from upwell.ground.types.memory import DEFAULT_TENANT
from upwell.ground.types.rpc import Ping

MAX_KEY_BYTES = 1_000
"""A longer key is truncated, and its hash is appended, because PostgreSQL limits an index entry to
2,700 bytes. `scan()` returns the key as stored."""
READ_SECONDS = 3.0
"""How long to wait for an original that an agent has asked for. Other entries are not worth such a
long wait."""
_AT = "tenant = %(tenant)s AND kind = %(kind)s"
_ALIVE = f"{_AT} AND expires_at > %(now)s"
_COLUMNS = "key, value, number, created_at, expires_at"
_PREFIX = "AND key >= %(prefix)b AND key < %(after)b"
_UPSERT = """
    INSERT INTO upwell.entry (tenant, kind, key, value, created_at, expires_at)
    SELECT %(tenant)s, %(kind)s, key, value, %(now)s, %(until)s
    FROM unnest(%(keys)b::bytea[], %(values)b::bytea[]) AS new(key, value)
    ON CONFLICT (tenant, kind, key) DO UPDATE SET
        number = CASE WHEN entry.expires_at > excluded.created_at THEN entry.number ELSE 0 END,
        value = excluded.value, created_at = excluded.created_at, expires_at = excluded.expires_at
    """
_INSERT_ABSENT = f"{_UPSERT} WHERE entry.expires_at <= excluded.created_at RETURNING 1"
_REPLACE = f"""
    UPDATE upwell.entry SET value = %(value)b, created_at = %(now)s, expires_at = %(until)s
    WHERE {_ALIVE} AND key = %(key)b AND value = %(expected)b RETURNING 1"""
_INCREMENT = """
    INSERT INTO upwell.entry (tenant, kind, key, number, created_at, expires_at)
    SELECT %(tenant)s, %(kind)s, key, amount, %(now)s, %(until)s
    FROM unnest(%(keys)b::bytea[], %(amounts)s::bigint[]) AS new(key, amount)
    ON CONFLICT (tenant, kind, key) DO UPDATE SET
        number = CASE WHEN entry.expires_at > excluded.created_at THEN entry.number ELSE 0 END
            + excluded.number,
        value = CASE WHEN entry.expires_at > excluded.created_at
            THEN entry.value ELSE excluded.value END,
        created_at = CASE WHEN entry.expires_at > excluded.created_at
            THEN entry.created_at ELSE excluded.created_at END,
        expires_at = excluded.expires_at"""
_SIZES = f"""
    SELECT key, octet_length(key) + octet_length(value) FROM upwell.entry
    WHERE {_AT} ORDER BY created_at DESC, key"""


class PostgresTtlStore(TtlStore):
    """The `TtlStore` of one tenant. All machines use the database's clock, so that no entries are
    lost if one machine's clock is wrong.

    Methods raise StoreError if the database fails or takes longer than `seconds`. The limit is
    longer for `get()` of originals, and under load. `expire()` and `ping()` have no limit, and
    `ping()` does not raise.
    """

    def __init__(
        self,
        postgres: Postgres,
        *,
        options: Options | None = None,
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
        seconds: float = PROMPT_SECONDS,
    ) -> None:
        self._postgres = postgres
        self._options = options or Options()
        self._tenant = tenant
        self._clock = clock
        self._seconds = seconds
        self._unchecked: dict[str, int] = {}

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        if not keys:
            return {}
        names = {encoded(key): key for key in keys}
        sql = f"SELECT {_COLUMNS} FROM upwell.entry WHERE {_ALIVE} AND key = ANY(%(keys)b)"
        statement = self._statement(kind, sql, {"keys": list(names)}, 0.0)
        seconds = max(READ_SECONDS, self._seconds) if kind == Kind.ORIGINAL else self._seconds
        (rows,) = await self._postgres.ask(self._tenant, statement, seconds=seconds)
        return {names[row[0]]: self._item(row, names[row[0]]) for row in rows}

    async def put_all(self, *entries: Entries) -> None:
        statements = [
            self._statement(group.kind, _UPSERT, _sorted(group.values), group.ttl_seconds)
            for group in entries
            if group.values
        ]
        if statements:
            await self._postgres.ask(self._tenant, *statements, seconds=self._seconds)
        for group in entries:
            await self._enforce_cap(group.kind, group.values)

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
        name = encoded(key)
        if expected is None:
            values: dict[str, object] = {"keys": [name], "values": [value]}
            rows = await self._run(kind, _INSERT_ABSENT, values, ttl_seconds)
        else:
            values = {"key": name, "expected": expected, "value": value}
            rows = await self._run(kind, _REPLACE, values, ttl_seconds)
        if rows:
            await self._enforce_cap(kind, {key: value})
        return bool(rows)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        sql = (
            f"UPDATE upwell.entry SET expires_at = %(until)s WHERE {_ALIVE} AND key = %(key)b "
            "RETURNING 1"
        )
        return bool(await self._run(kind, sql, {"key": encoded(key)}, ttl_seconds))

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        if by:
            pairs = sorted((encoded(key), amount) for key, amount in by.items())
            keys, amounts = zip(*pairs, strict=True)
            values = {"keys": list(keys), "amounts": list(amounts)}
            await self._run(kind, _INCREMENT, values, ttl_seconds)

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        condition, values = _having(prefix)
        sql = (
            f"SELECT {_COLUMNS} FROM upwell.entry WHERE {_ALIVE} {condition} "
            "ORDER BY created_at, key"
        )
        rows = await self._run(kind, sql, values)
        return [self._item(row, row[0].decode("utf-8", "replace")) for row in rows]

    async def newest(
        self, kind: str, *, limit: int, before: float = math.inf, holding: Sequence[bytes] = ()
    ) -> list[Item]:
        conditions = [f"AND position(%(part{n})b IN value) > 0" for n in range(len(holding))]
        values: dict[str, object] = {f"part{n}": part for n, part in enumerate(holding)}
        values |= {"limit": limit, "before": before + self._postgres.clock_offset}
        sql = (
            f"SELECT {_COLUMNS} FROM upwell.entry WHERE {_ALIVE} AND created_at < %(before)s "
            f"{' '.join(conditions)} ORDER BY created_at DESC, key LIMIT %(limit)s"
        )
        rows = await self._run(kind, sql, values)
        return [self._item(row, row[0].decode("utf-8", "replace")) for row in rows]

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        if not keys:
            return 0
        names = sorted({encoded(key) for key in keys})
        sql = f"DELETE FROM upwell.entry WHERE {_ALIVE} AND key = ANY(%(keys)b) RETURNING 1"
        return len(await self._run(kind, sql, {"keys": names}))

    async def drop(self, kind: str, prefix: str = "") -> int:
        condition, values = _having(prefix)
        sql = f"DELETE FROM upwell.entry WHERE {_AT} {condition} RETURNING 1"
        return len(await self._run(kind, sql, values))

    async def expire(self) -> int:
        sql = "DELETE FROM upwell.entry WHERE tenant = %(tenant)s AND expires_at <= %(now)s "
        (rows,) = await self._postgres.ask(
            self._tenant, Statement(f"{sql} RETURNING 1", {"now": self._now()})
        )
        return len(rows)

    async def ping(self) -> Ping:
        sql = "SELECT count(*) FROM upwell.entry WHERE tenant = %(tenant)s"
        try:
            (rows,) = await self._postgres.ask(self._tenant, Statement(sql, {}))
        except StoreError as error:
            return Ping(ok=False, detail=error.message, hint=error.hint)
        return Ping(ok=True, detail=f"{counted(rows[0][0], 'entry', 'entries')} in PostgreSQL")

    async def _run(
        self, kind: str, sql: str, values: Mapping[str, object], ttl_seconds: float = 0.0
    ) -> Rows:
        statement = self._statement(kind, sql, values, ttl_seconds)
        (rows,) = await self._postgres.ask(self._tenant, statement, seconds=self._seconds)
        return rows

    def _statement(
        self, kind: str, sql: str, values: Mapping[str, object], ttl_seconds: float
    ) -> Statement:
        now = self._now()
        return Statement(sql, {**values, "kind": kind, "now": now, "until": now + ttl_seconds})

    def _now(self) -> float:
        return self._clock.now() + self._postgres.clock_offset

    def _item(self, row: Sequence[object], key: str) -> Item:
        _, value, number, created_at, expires_at = row
        offset = self._postgres.clock_offset
        return Item(
            key=key,
            value=bytes(value),  # type: ignore[call-overload]
            number=number,  # type: ignore[arg-type]
            created_at=created_at - offset,  # type: ignore[operator]
            expires_at=expires_at - offset,  # type: ignore[operator]
        )

    async def _enforce_cap(self, kind: str, values: Mapping[str, bytes]) -> None:
        cap = self._options.max_bytes.get(kind)
        if cap is None or not is_due(self._unchecked, kind, values, cap):
            return
        total_bytes, evicted = 0, []
        for key, size in await self._run(kind, _SIZES, {}):
            total_bytes += file_bytes(size)
            if total_bytes > cap:
                evicted.append(key)
        if evicted:
            sql = f"DELETE FROM upwell.entry WHERE {_AT} AND key = ANY(%(keys)b)"
            await self._run(kind, sql, {"keys": sorted(evicted)})


class TeamTtlStore(TtlStore):
    """Stores entries of `LOCAL_KINDS` in `own`, this machine's store, and all others in `shared`,
    the team's store."""

    def __init__(self, own: TtlStore, shared: TtlStore) -> None:
        self._own = own
        self._shared = shared

    async def get(self, kind: str, keys: Sequence[str]) -> dict[str, Item]:
        return await self._of(kind).get(kind, keys)

    async def put_all(self, *entries: Entries) -> None:
        for store in (self._own, self._shared):
            if groups := [group for group in entries if self._of(group.kind) is store]:
                await store.put_all(*groups)

    async def compare_and_set(
        self, kind: str, key: str, expected: bytes | None, value: bytes, *, ttl_seconds: float
    ) -> bool:
        store = self._of(kind)
        return await store.compare_and_set(kind, key, expected, value, ttl_seconds=ttl_seconds)

    async def touch(self, kind: str, key: str, *, ttl_seconds: float) -> bool:
        return await self._of(kind).touch(kind, key, ttl_seconds=ttl_seconds)

    async def incr(self, kind: str, by: Mapping[str, int], *, ttl_seconds: float) -> None:
        await self._of(kind).incr(kind, by, ttl_seconds=ttl_seconds)

    async def scan(self, kind: str, prefix: str = "") -> list[Item]:
        return await self._of(kind).scan(kind, prefix)

    async def newest(
        self, kind: str, *, limit: int, before: float = math.inf, holding: Sequence[bytes] = ()
    ) -> list[Item]:
        return await self._of(kind).newest(kind, limit=limit, before=before, holding=holding)

    async def delete(self, kind: str, keys: Sequence[str]) -> int:
        return await self._of(kind).delete(kind, keys)

    async def drop(self, kind: str, prefix: str = "") -> int:
        return await self._of(kind).drop(kind, prefix)

    async def expire(self) -> int:
        return await self._own.expire() + await self._shared.expire()

    async def ping(self) -> Ping:
        return await self._shared.ping()

    def _of(self, kind: str) -> TtlStore:
        return self._own if kind in LOCAL_KINDS else self._shared


def encoded(key: str) -> bytes:
    """Return the bytes under which a key is stored."""
    name = key.encode("utf-8", "surrogatepass")
    if len(name) <= MAX_KEY_BYTES:
        return name
    digest = hashlib.sha256(name).hexdigest().encode()
    return name[: MAX_KEY_BYTES - len(digest)] + digest


def _sorted(values: Mapping[str, bytes]) -> dict[str, object]:
    """Return keys and values as two arrays, sorted so that processes cannot deadlock."""
    pairs = sorted((encoded(key), value) for key, value in values.items())
    return {"keys": [key for key, _ in pairs], "values": [value for _, value in pairs]}


def _having(prefix: str) -> tuple[str, dict[str, object]]:
    # No byte of UTF-8 is 0xff, so every key with the prefix sorts below the prefix plus 0xff.
    name = prefix.encode("utf-8", "surrogatepass")
    return (_PREFIX, {"prefix": name, "after": name + b"\xff"}) if prefix else ("", {})
