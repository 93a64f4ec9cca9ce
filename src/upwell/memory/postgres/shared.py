"""The interface of the team's store for developers' machines: snapshots, and writes that take
effect once."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.ledger import EntryKind
from upwell.ground.postgres.connection import Postgres, Statement, Transaction
from upwell.ground.postgres.schema import ENSURE_TENANT
from upwell.ground.types.memory import DEFAULT_TENANT, Memory
from upwell.ground.types.rpc import PRIVATE
from upwell.memory.postgres.counts import namespace_values, within
from upwell.memory.postgres.lookup import measure
from upwell.memory.postgres.writing import BY_ID, COLUMNS, LOCK_TENANT, from_row, insert, remove
from upwell.memory.records import from_json, to_json
from upwell.memory.team.exchange import MAX_MEMORIES, Outgoing, RefusedWrite, Removal, Snapshot
from upwell.memory.team.gateway import Received

TOKEN_SECONDS = 90 * 86_400.0
"""How long the token of a received write is stored. A machine resends an unacknowledged write when
it next connects, and the token shows that the write has already arrived."""
NOT_YOURS = "a memory with this id, or the one that it replaces, is not yours to change"
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_STATE = "SELECT identity::text, version, xmin::text FROM upwell.tenant WHERE tenant = %(tenant)s"
# A single statement sees the memories and their version at the same moment.
_SNAPSHOT = f"""
    SELECT t.identity::text, t.version, t.xmin::text, m.n IS NOT NULL,
        {", ".join(f"m.{name}" for name in COLUMNS.split(", "))}
    FROM upwell.tenant t LEFT JOIN (
        SELECT * FROM upwell.memory
        WHERE tenant = %(tenant)s AND NOT starts_with(namespace, '{PRIVATE}')
            AND (expires_at IS NULL OR expires_at > {_NOW}) AND {{condition}}
        ORDER BY updated_at DESC, n DESC LIMIT %(most)s) AS m ON true
    WHERE t.tenant = %(tenant)s"""
_RECEIVE = f"""
    INSERT INTO upwell.entry (tenant, kind, key, created_at, expires_at)
    SELECT %(tenant)s, '{EntryKind.RECEIVED}', convert_to(token, 'UTF8'),
        {_NOW}, {_NOW} + %(seconds)s
    FROM unnest(%(tokens)s::text[]) AS new(token)
    ON CONFLICT DO NOTHING RETURNING convert_from(key, 'UTF8')"""
_TRASH = f"""
    INSERT INTO upwell.trash SELECT %(tenant)s, id, {_NOW}, memory
    FROM unnest(%(ids)s::text[], %(memories)s::text[]) AS gone(id, memory)
    ON CONFLICT (tenant, id) DO UPDATE
    SET deleted_at = excluded.deleted_at, memory = excluded.memory"""
_FORGET = "DELETE FROM upwell.trash WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"
_NAMESPACES = (
    "SELECT id, namespace FROM upwell.memory WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"
)
_TRASHED = "SELECT id, memory FROM upwell.trash WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"
_RETURN = f"""
    DELETE FROM upwell.entry WHERE tenant = %(tenant)s AND kind = '{EntryKind.RECEIVED}'
    AND key IN (SELECT convert_to(token, 'UTF8') FROM unnest(%(tokens)s::text[]) AS r(token))"""


class TenantState(Struct, frozen=True):
    """The state of a tenant's memories. Every write raises `version`. `xmin` is the transaction of
    the last one: it tells apart two databases with the same version, one of which was restored from
    a backup."""

    identity: str
    version: int
    xmin: str

    def etag(self, namespaces: Sequence[str] | None) -> str:
        """Return the ETag for a principal who sees these namespaces (None: all)."""
        parts = (self.identity, self.version, self.xmin, MAX_MEMORIES, namespaces)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class PostgresSharedMemories:
    """`TeamMemories` for a tenant. Snapshots do not contain the tenant's name. On each machine, the
    memories belong to `DEFAULT_TENANT`."""

    def __init__(self, postgres: Postgres, *, tenant: str = DEFAULT_TENANT) -> None:
        self.postgres = postgres
        self._tenant = tenant

    async def identity(self) -> str:
        return (await self._state()).identity

    async def etag(self, namespaces: Sequence[str] | None = None) -> str:
        """Return the ETag of the snapshot with the memories in these namespaces. Raises StoreError
        if the database failed."""
        return (await self._state()).etag(namespaces)

    async def snapshot(self, etag: str = "") -> Snapshot | None:
        return None if await self.etag() == etag else await self.snapshot_of(None)

    async def snapshot_of(self, namespaces: Sequence[str] | None) -> Snapshot:
        """Return the memories in these namespaces, or all, except private ones. If there are more
        than `MAX_MEMORIES`, the most recently changed ones are returned. Raises StoreError if the
        database failed."""
        await self._state()
        condition = "true" if namespaces is None else within("namespace", namespaces)
        values = {**namespace_values(namespaces or ()), "most": MAX_MEMORIES}
        statement = Statement(_SNAPSHOT.format(condition=condition), values)
        (rows,) = await self.postgres.ask(self._tenant, statement)
        # Building many memories would block the event loop for too long.
        memories = await asyncio.to_thread(
            lambda: [from_row(DEFAULT_TENANT, row[4:]) for row in rows if row[3]]
        )
        state = TenantState(*rows[0][:3])
        return Snapshot(state.identity, state.etag(namespaces), memories)

    async def _state(self) -> TenantState:
        (rows,) = await self.postgres.ask(self._tenant, Statement(_STATE, {}))
        if not rows:
            ensure = Statement(ENSURE_TENANT, {"name": self._tenant})
            _, rows = await self.postgres.ask(self._tenant, ensure, Statement(_STATE, {}))
        return TenantState(*rows[0])

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        return (await self.receive_within(writes, None)).refused

    async def receive_within(
        self, writes: Sequence[Outgoing], may_change: Callable[[str], bool] | None
    ) -> Received:
        """Apply these writes in one transaction, except those that have arrived before and those
        that change a namespace for which `may_change()` returns False. Raises StoreError if the
        database failed. Nothing was changed, unless the connection broke while the server was
        committing."""
        refused: Sequence[RefusedWrite] = ()
        async with self.postgres.transaction(self._tenant) as transaction:
            tokens = sorted(write.token for write in writes)
            (fresh,) = await transaction.run(
                Statement(_RECEIVE, {"tokens": tokens, "seconds": TOKEN_SECONDS})
            )
            new = [write for write in writes if (write.token,) in fresh]
            if may_change and new:
                refused = await _foreign(transaction, new, may_change)
                foreign = {refusal.token for refusal in refused}
                new = [write for write in new if write.token not in foreign]
            memories = await self._apply(transaction, new)
        if memories:
            await measure(self.postgres, self._tenant, {memory.project for memory in memories})
        return Received(frozenset(write.token for write in new), refused)

    async def _apply(
        self, transaction: Transaction, writes: Sequence[Outgoing]
    ) -> Sequence[Memory]:
        memories = [
            replace(write.content, tenant=self._tenant)
            for write in writes
            if isinstance(write.content, Memory)
        ]
        if memories:
            await insert(transaction, self._tenant, memories)
        trashed = [write.id for write in writes if write.content is Removal.TRASH]
        purged = [write.id for write in writes if write.content is Removal.PURGE]
        if trashed:
            (rows,) = await transaction.run(Statement(BY_ID, {"ids": trashed}))
            gone = [from_row(self._tenant, row) for row in rows]
            values = {
                "ids": [memory.id for memory in gone],
                "memories": [to_json(memory) for memory in gone],
            }
            await transaction.run(Statement(_TRASH, values))
        if trashed or purged:
            await remove(transaction, [*trashed, *purged])
        # A memory that is stored again or deleted permanently must leave the trash.
        out = [*purged, *(memory.id for memory in memories)]
        if out:
            await transaction.run(Statement(_FORGET, {"ids": out}))
        return memories


async def _foreign(
    transaction: Transaction, writes: Sequence[Outgoing], may_change: Callable[[str], bool]
) -> list[RefusedWrite]:
    """Return the writes that would change, delete or supersede a memory that the machine may not
    change. Their tokens are deleted, as if the writes had never arrived."""
    ids = {"ids": sorted({id for write in writes for id in _touched(write)})}
    _, rows, trashed = await transaction.run(
        LOCK_TENANT, Statement(_NAMESPACES, ids), Statement(_TRASHED, ids)
    )
    namespaces = [*rows, *((id, from_json(memory).namespace) for id, memory in trashed)]
    foreign = {id for id, namespace in namespaces if not may_change(namespace)}
    refused = [
        RefusedWrite(write.token, NOT_YOURS)
        for write in writes
        if not foreign.isdisjoint(_touched(write))
    ]
    if refused:
        tokens = [refusal.token for refusal in refused]
        await transaction.run(Statement(_RETURN, {"tokens": tokens}))
    return refused


def _touched(write: Outgoing) -> set[str]:
    supersedes = write.content.supersedes if isinstance(write.content, Memory) else None
    return {write.id, *([supersedes] if supersedes else [])}
