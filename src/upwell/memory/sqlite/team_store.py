"""The store of a developer who shares memories with a team: the developer's own `memory.db`, which
also contains a copy of the team's memories."""

import asyncio
import sqlite3
from collections.abc import Collection, Sequence
from functools import partial

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import StoreError
from upwell.ground.remote_address import address_of
from upwell.ground.sqlite.database import Database
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.memory.base import Added
from upwell.memory.embedding.questions import QuestionVectors
from upwell.memory.ranking.scoring import Pool
from upwell.memory.sqlite import copied
from upwell.memory.sqlite.copied import CopyState
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.team.base import ChangePage, Cursor, Outgoing
from upwell.memory.team.sharing import for_team, is_for_team

UNUSED_SECONDS = 90 * 86_400.0
"""The copy of a project is removed if this machine has not used the project for this long."""
WAITING_AT_ONCE = 100


class TeamStore(SqliteStore):
    """The `Store` for a developer's own memories and a copy of the team's memories. No method waits
    for the team's store.

    A memory belongs to the team if a person puts it in the namespace `team` or one below it; all
    other new memories stay on this machine. `wanted` is set when a project is first used, so that
    the project's copy is brought up to date soon.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock = SYSTEM_CLOCK,
        questions: QuestionVectors | None = None,
    ) -> None:
        super().__init__(database, clock=clock, questions=questions)
        self.wanted = asyncio.Event()
        self._in_use: dict[str, float] = {}
        self._has_removed = False

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Like `SqliteStore.add`, but memories that belong to the team are also queued for
        sending. A memory stays on this machine if its folder has no Git remote that others can
        reach."""
        return await super().add([_prepared(memory) for memory in memories])

    async def update(self, memory: Memory) -> None:
        await super().update(_prepared(memory))

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        self._use(query.scope)
        return await super().candidates(query, deadline)

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        self._use(scope)
        return await super().pinned(scope, limit=limit)

    async def purge(self, memory_id: str | None = None) -> int:
        count = await super().purge(memory_id)
        if self._has_removed and memory_id is None:
            # Memories that the team has permanently deleted must be erased from this file as well.
            self._has_removed = False
            await self.drop_deleted_words()
        return count

    # The copy

    async def begin(self, source: str) -> None:
        """Prepare the copy of the store named `source`, and remove a copy of any other store."""
        await self._database.write(lambda db: copied.begin(db, source, self._clock.now()))

    async def cursors(self) -> list[Cursor]:
        """Add projects that have come into use, remove copies of unused projects, and return the
        cursor of each project's copy."""
        self.wanted.clear()
        projects, now = list(self._in_use), self._clock.now()

        def look(db: sqlite3.Connection) -> list[Cursor]:
            copied.use(db, ["", *projects], now)
            copied.leave_unused(db, now - UNUSED_SECONDS)
            return copied.cursors(db)

        return await self._database.write(look)

    async def note_use(self) -> None:
        """Add projects that have come into use in this process, so that the process that keeps the
        copy also copies their memories."""
        if not self.wanted.is_set():
            return
        self.wanted.clear()
        projects, now = list(self._in_use), self._clock.now()
        try:
            await self._database.write(lambda db: copied.use(db, projects, now))
        except StoreError:
            self.wanted.set()  # to be tried again
            raise

    async def take(self, page: ChangePage) -> None:
        """Apply a page of changes and store the new cursor, in one transaction."""
        removed = await self._database.write(partial(copied.take, page=page))
        self._has_removed |= removed > 0
        if page.is_last and page.changes:
            await self.measure([page.cursor.project or None])

    async def checked(self) -> None:
        """Record that the copy is up to date."""
        now = self._clock.now()
        await self._database.write(
            lambda db: db.execute("UPDATE team SET checked_at = ?", (now,)) and None
        )

    async def outgoing(self, *, again: bool = True, tried: Collection[str] = ()) -> list[Outgoing]:
        """Return up to `WAITING_AT_ONCE` writes that are waiting to be sent, except those with the
        tokens `tried`. Rejected writes are included only if `again` is True."""
        find = partial(copied.outgoing, limit=WAITING_AT_ONCE, again=again, tried=tried)
        return await self._database.read(find)

    async def has_outgoing(self) -> bool:
        """Return whether any writes are waiting to be sent, not counting rejected ones."""
        sql = "SELECT 1 FROM outbox WHERE error = '' LIMIT 1"
        return await self._database.inline_read(lambda db: db.execute(sql).fetchone() is not None)

    async def sent(self, writes: Sequence[Outgoing]) -> None:
        """Record that these writes have arrived."""
        await self._database.write(partial(copied.sent, writes=writes))

    async def refuse(self, write: Outgoing, error: str) -> None:
        """Record that the team's store rejected a write. The write is sent again from time to
        time."""
        await self._database.write(partial(copied.refuse, write=write, error=error))

    async def copy_state(self) -> CopyState:
        return await self._database.read(copied.state)

    def _use(self, scope: Scope) -> None:
        address = address_of(scope.project)
        if address is None:
            return
        if address not in self._in_use:
            self.wanted.set()
        self._in_use[address] = self._clock.now()


def _prepared(memory: Memory) -> Memory:
    return for_team(memory) if is_for_team(memory) else memory
