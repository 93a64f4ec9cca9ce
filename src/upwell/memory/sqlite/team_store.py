"""The store of a developer who shares memories with a team: the developer's own `memory.db`, which
also has a snapshot of the team's memories."""

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import batched

from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.errors import StoreError
from upwell.ground.sqlite.database import Database
from upwell.ground.types.memory import Memory, Scope
from upwell.ground.types.rpc import PRIVATE
from upwell.memory.base import Added
from upwell.memory.meaning import QuestionVectors
from upwell.memory.records import check, complete, stamped
from upwell.memory.sqlite import snapshot
from upwell.memory.sqlite.rows import CHUNK
from upwell.memory.sqlite.snapshot import SnapshotState
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.team.exchange import Outgoing, QueuedWrite, Removal, TeamMemories, WriteQueue
from upwell.memory.team.sharing import for_team, is_for_team, teams_namespace

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
        look = partial(snapshot.rows_among, ids=[rule.id for rule in rules])
        teams = await self._database.inline_read(look)
        return [
            replace(rule, namespace=teams_namespace(rule.namespace)) if rule.id in teams else rule
            for rule in rules
        ]

    async def _share(self, memories: Sequence[Memory]) -> None:
        """Queue the team's memories among these, and those that were the team's until now."""
        ids = [memory.id for memory in memories]
        known = await self._database.read(lambda db: snapshot.rows_among(db, ids))
        shared = [m for m in memories if (is_for_team(m) or m.id in known) and _can_leave(m)]
        private = [m for m in memories if m.id in known and m.namespace.startswith(PRIVATE)]
        if not (shared or private):
            return
        await self._enqueue(
            [_outgoing(memory.id, memory) for memory in shared]
            + [_outgoing(memory.id, Removal.TRASH) for memory in private]
        )
        await self._database.write(partial(snapshot.add_rows, ids=[m.id for m in shared]))
        await self._database.write(partial(snapshot.remove_rows, ids=[m.id for m in private]))

    async def _withdraw(self, memory_id: str, removal: Removal) -> None:
        """Queue the removal of a memory, if it is the team's."""
        if not await self._database.read(lambda db: snapshot.rows_among(db, [memory_id])):
            return
        if await self.get_many([memory_id]):
            await self._enqueue([_outgoing(memory_id, removal)])

    async def _enqueue(self, writes: Iterable[Outgoing]) -> None:
        await asyncio.to_thread(self.queue.append, list(writes), self._clock.now())

    # The snapshot

    async def state(self) -> SnapshotState:
        return await self._database.read(snapshot.state)

    async def shared(self) -> Collection[str]:
        """The ids of the team's memories in the file."""
        return await self._database.read(snapshot.rows)

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
        await self._database.write(partial(snapshot.remove_rows, ids=waiting))
        await asyncio.to_thread(self.queue.clear)
        removed = await self._drop(await self._database.read(snapshot.rows))
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
        copied = await self._database.read(snapshot.rows)
        waiting = {entry.write.id for entry in await self._waiting()}
        await self._drop(copied.difference([memory.id for memory in memories], waiting))
        changed: list[Memory] = []
        for batch in batched((m for m in memories if m.id not in waiting), CHUNK):
            look = partial(snapshot.differing, memories=batch, copied=copied)
            changed += await self._database.read(look)
        loop = asyncio.get_running_loop()
        for batch in batched(changed, BATCH):
            began = loop.time()
            await self._database.write(partial(snapshot.store, memories=batch))
            await asyncio.sleep((loop.time() - began) * (1 / BUSY_SHARE - 1))
        if changed:
            await self.measure({memory.project for memory in changed})

    async def _drop(self, ids: Collection[str]) -> int:
        if not ids:
            return 0
        removed = await self._database.write(partial(snapshot.drop, ids=ids))
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
