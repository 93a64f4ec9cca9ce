"""The interface through which machines copy the team's store. It returns the changes since a cursor
and accepts the machines' writes."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from upwell.ground.errors import StoreError
from upwell.ground.postgres.connection import Postgres, Rows, Statement, Transaction
from upwell.ground.postgres.listening import listen
from upwell.ground.postgres.schema import ENSURE_TENANT
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import EntryKind
from upwell.ground.types.memory import DEFAULT_TENANT, Memory, Scope
from upwell.memory.postgres.null_scores import measure_if_due
from upwell.memory.postgres.rows import COLUMNS, from_row
from upwell.memory.postgres.writing import LOCK_TENANT, insert, remove
from upwell.memory.records import from_json, to_json
from upwell.memory.team.access import Received
from upwell.memory.team.base import (
    ChangePage,
    Cursor,
    Outgoing,
    RefusedWrite,
    Removal,
    SharedChange,
)

MAX_COPIED = 50_000
"""The maximum number of memories of one project in a new copy. If there are more, the most recently
changed ones are copied."""
PAGE = 100
"""The number of changes in one page. A copy applies a page in about 50 ms."""
TOKEN_SECONDS = 90 * 86_400.0
"""How long the token of a received write is stored. A machine resends an unacknowledged write when
it next connects, and the token shows that the write has already arrived."""
_BEYOND = 2**63 - 1
"""A version higher than any store can reach."""
NOT_YOURS = "a memory with this id, or the one that it replaces, is not yours to change"
_NOW = "extract(epoch FROM clock_timestamp())::float8"
_IDENTITY = "SELECT identity::text FROM upwell.tenant WHERE tenant = %(tenant)s"
_VERSION = "SELECT coalesce(max(version), 0) FROM upwell.tenant WHERE tenant = %(tenant)s"
_PRUNED = """
    SELECT project, pruned_version, pruned_id FROM upwell.scope
    WHERE tenant = %(tenant)s AND project = ANY(%(projects)s)"""
_OF_PROJECT = "tenant = %(tenant)s AND project = %(project)s"
_START = f"""
    SELECT version, id FROM upwell.change WHERE {_OF_PROJECT} AND NOT gone
    ORDER BY version DESC, id DESC OFFSET %(most)s LIMIT 1"""
_CHANGES = f"""
    SELECT c.version, c.id, m.n IS NULL, {", ".join(f"m.{name}" for name in COLUMNS.split(", "))}
    FROM (SELECT version, id, gone FROM upwell.change
          WHERE {_OF_PROJECT} AND (version, id) > (%(version)s, %(after)s)
              AND (NOT gone OR version > %(base)s)
          ORDER BY version, id LIMIT %(page)s) AS c
    LEFT JOIN upwell.memory m ON m.tenant = %(tenant)s AND m.id = c.id AND NOT c.gone
        AND m.project = %(project)s AND NOT starts_with(m.namespace, 'me/')
    ORDER BY c.version, c.id"""
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
_BY_IDS = f"SELECT {COLUMNS} FROM upwell.memory WHERE tenant = %(tenant)s AND id = ANY(%(ids)s)"


class PostgresSharedMemories:
    """`SharedMemories` for a tenant. Copies do not contain the tenant's name. On each machine, the
    memories belong to `DEFAULT_TENANT`."""

    def __init__(self, postgres: Postgres, *, tenant: str = DEFAULT_TENANT) -> None:
        self.postgres = postgres
        self._tenant = tenant

    async def identity(self) -> str:
        """Return the store's identity.

        Raises:
            StoreError: the database failed.
        """
        _, ((identity,),) = await self.postgres.ask(
            self._tenant, Statement(ENSURE_TENANT, {"name": self._tenant}), Statement(_IDENTITY, {})
        )
        return str(identity)

    async def pages(self, cursors: Sequence[Cursor]) -> list[ChangePage]:
        """Return the next changes of each project, in one round trip, or two if a copy is new or
        must start again. It must start again if it has missed pruned deletions, or if the database
        was restored from a backup."""
        projects = Statement(_PRUNED, {"projects": [cursor.project for cursor in cursors]})
        # The version is read first and the pruned positions last, so that no deletion can be pruned
        # unnoticed in between.
        ((version,),), *read, rows = await self.postgres.ask(
            self._tenant, Statement(_VERSION, {}), *map(_changes, cursors), projects
        )
        pruned = {project: (number, id) for project, number, id in rows}
        missing = [c for c in cursors if _must_begin(c, version, pruned.get(c.project, (0, "")))]
        begun = {page.cursor.project: page for page in await self._begun(missing, version)}
        return [
            begun.get(cursor.project)
            or self._page(cursor, rows, pruned.get(cursor.project, (0, "")))
            for cursor, rows in zip(cursors, read, strict=True)
        ]

    async def follow(self, changed: Callable[[], None]) -> None:
        await listen(self.postgres, self._tenant, changed)

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        """Apply these writes in one transaction, except those that have arrived before."""
        return (await self.receive_within(writes, None)).refused

    async def receive_within(
        self, writes: Sequence[Outgoing], may_change: Callable[[str], bool] | None
    ) -> Received:
        """Apply these writes in one transaction, except those that have arrived before and those
        that change a namespace for which `may_change()` returns False.

        Raises:
            StoreError: the database failed. Nothing was changed, unless the connection broke while
                the server was committing.
        """
        refused: Sequence[RefusedWrite] = ()
        async with self.postgres.transaction(self._tenant) as transaction:
            new = await _fresh(transaction, writes)
            if may_change and new:
                refused = await _foreign(transaction, new, may_change)
                tokens = {refusal.token for refusal in refused}
                new = [write for write in new if write.token not in tokens]
            memories = await self._apply(transaction, new)
        await self._measure({memory.project for memory in memories})
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
            (rows,) = await transaction.run(Statement(_BY_IDS, {"ids": trashed}))
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

    async def _measure(self, projects: set[str | None]) -> None:
        try:
            for project in projects | ({None} if projects else set()):
                await measure_if_due(self.postgres, Scope(tenant=self._tenant, project=project))
        except StoreError as error:
            # The memories are stored. Until the next addition, searches use the old null scores.
            LOG.warning("cannot measure null scores: %s", error)

    async def _begun(self, cursors: Sequence[Cursor], version: int) -> list[ChangePage]:
        """Return the first pages of new copies. Each has no changes, only the cursor with which the
        copy starts to fill."""
        if not cursors:
            return []
        read = await self.postgres.ask(
            self._tenant,
            *(Statement(_START, {"project": c.project, "most": MAX_COPIED}) for c in cursors),
        )
        return [
            ChangePage((), _first(cursor, version, *(rows[0] if rows else (0, ""))), is_last=False)
            for cursor, rows in zip(cursors, read, strict=True)
        ]

    def _page(self, cursor: Cursor, rows: Rows, pruned: tuple[int, str]) -> ChangePage:
        changes = [
            SharedChange(
                row[1], None if row[2] else self._own(from_row(self._tenant, row[3:])), row[0]
            )
            for row in rows
        ]
        last = (rows[-1][0], rows[-1][1]) if rows else cursor.position
        if len(rows) == PAGE:
            return ChangePage(changes, cursor.behind(*last), is_last=False)
        if cursor.base >= 0:
            # The copy began with the memories of the base version, so it needs no earlier
            # deletions.
            last = max(last, (cursor.base, ""), pruned)
        return ChangePage(changes, Cursor(cursor.project, *last), is_last=True)

    def _own(self, memory: Memory) -> Memory:
        return replace(memory, tenant=DEFAULT_TENANT)


async def _fresh(transaction: Transaction, writes: Sequence[Outgoing]) -> list[Outgoing]:
    """Return the writes that have not arrived before, and record them as arrived."""
    (fresh,) = await transaction.run(
        Statement(_RECEIVE, {"tokens": sorted(w.token for w in writes), "seconds": TOKEN_SECONDS})
    )
    tokens = {token for (token,) in fresh}
    return [write for write in writes if write.token in tokens]


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


def _must_begin(cursor: Cursor, version: int, pruned: tuple[int, str]) -> bool:
    """Return whether a copy must start again. `version` is the store's version. `pruned` is the
    position of the project's last pruned deletion."""
    if cursor.base >= 0:
        return not pruned[0] <= cursor.base <= version
    return not (0 <= cursor.version <= version and cursor.position >= pruned)


def _first(cursor: Cursor, version: int, start: int, after: str) -> Cursor:
    """Return the cursor with which a copy starts to fill. It points directly after the change at
    (`start`, `after`). Its version is lower than the old cursor's, which tells the copy to start
    again."""
    if cursor.base > version:
        # The database was restored from a backup while the copy was being filled. This cursor
        # raises the version, so that the next one can lower it.
        return Cursor(cursor.project, _BEYOND)
    return Cursor.filling(cursor.project, version, start, after)


def _changes(cursor: Cursor) -> Statement:
    version, after = cursor.position
    values = {
        "project": cursor.project,
        "version": version,
        "after": after,
        "base": cursor.base,
        "page": PAGE,
    }
    return Statement(_CHANGES, values)
