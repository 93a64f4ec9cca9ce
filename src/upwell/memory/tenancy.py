"""A store that is confined to one tenant: it sets its own tenant in every query and memory, so no
caller can reach another tenant."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from upwell.ground.clock import Deadline
from upwell.ground.types.memory import Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.base import Added, Store, WordCounts
from upwell.memory.embedding.questions import VectorIndex
from upwell.memory.ranking.scoring import Pool


class TenantStore:
    """`Store` of one tenant, over a store opened for the same tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self.name = store.name

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        return await self._store.add([replace(memory, tenant=self._tenant) for memory in memories])

    async def update(self, memory: Memory) -> None:
        await self._store.update(replace(memory, tenant=self._tenant))

    async def delete(self, memory_id: str) -> bool:
        return await self._store.delete(memory_id)

    async def restore(self, memory_id: str) -> bool:
        return await self._store.restore(memory_id)

    async def purge(self, memory_id: str | None = None) -> int:
        return await self._store.purge(memory_id)

    async def get(self, memory_id: str) -> Memory | None:
        return await self._store.get(memory_id)

    async def get_many(self, ids: Sequence[str]) -> Sequence[Memory]:
        return await self._store.get_many(ids)

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        return await self._store.list(self._own(scope), limit=limit, offset=offset)

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        return await self._store.pinned(self._own(scope), limit=limit)

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        return await self._store.trash(limit=limit)

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        return await self._store.superseded(ids)

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        return await self._store.candidates(replace(query, scope=self._own(query.scope)), deadline)

    async def changes(self) -> Hashable:
        return await self._store.changes()

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        return await self._store.stamps(limit=limit)

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        return await self._store.word_counts(words)

    @property
    def vectors(self) -> VectorIndex | None:
        return self._store.vectors

    async def ping(self) -> Ping:
        return await self._store.ping()

    def _own(self, scope: Scope) -> Scope:
        return replace(scope, tenant=self._tenant)
