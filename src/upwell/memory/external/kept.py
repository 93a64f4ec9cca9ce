"""Stores the hits of another memory server, so that they can be read by id later and from another
process. Most servers have no tool that reads by id."""

import json
from collections import OrderedDict
from collections.abc import Sequence

from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import Kind, TtlStore
from upwell.ground.types.memory import Memory, Trust

MAX_CACHED = 500
RETENTION_SECONDS = 30 * 86_400.0


class KeptHits:
    """The latest hits in memory, and those of the last 30 days in `ttl_store`, which is written to
    after the search. If the store fails, `get` finds only the hits in memory."""

    def __init__(self, ttl_store: TtlStore | None = None) -> None:
        self._ttl_store = ttl_store
        self._latest: OrderedDict[str, Memory] = OrderedDict()
        self._writes = BackgroundTasks("keeping hits of a memory server")

    def keep(self, memories: Sequence[Memory]) -> None:
        """Keep these memories. Their secrets must already be masked."""
        fresh = [memory for memory in memories if memory.id not in self._latest]
        for memory in memories:
            self._latest[memory.id] = memory
            self._latest.move_to_end(memory.id)
        while len(self._latest) > MAX_CACHED:
            self._latest.popitem(last=False)
        if fresh and self._ttl_store is not None:
            self._writes.start(self._write(self._ttl_store, fresh))

    async def get(self, memory_id: str) -> Memory | None:
        """Return the memory with this id, or None if it was not a hit within the last 30 days."""
        latest = self._latest.get(memory_id)
        if latest is not None or self._ttl_store is None:
            return latest
        try:
            item = (await self._ttl_store.get(Kind.PASSAGE, [memory_id])).get(memory_id)
        except StoreError as error:
            LOG.warning("the hits of a memory server cannot be read: %s", error)
            return None
        return _decoded(memory_id, item.value) if item else None

    async def aclose(self) -> None:
        """Finish writing."""
        await self._writes.drain()

    async def _write(self, ttl_store: TtlStore, memories: Sequence[Memory]) -> None:
        entries = {memory.id: _encoded(memory) for memory in memories}
        try:
            await ttl_store.put(Kind.PASSAGE, entries, ttl_seconds=RETENTION_SECONDS)
        except StoreError as error:
            LOG.warning("hits of a memory server were not kept: %s", error)


def _encoded(memory: Memory) -> bytes:
    texts = {"text": memory.text, "source": memory.source}
    lists = {"tags": memory.tags, "paths": memory.paths, "symbols": memory.symbols}
    return json.dumps(texts | lists).encode()


def _decoded(memory_id: str, value: bytes) -> Memory:
    fields = json.loads(value)
    return Memory(
        id=memory_id,
        text=fields["text"],
        source=fields["source"],
        tags=tuple(fields["tags"]),
        paths=tuple(fields["paths"]),
        symbols=tuple(fields["symbols"]),
        trust=Trust.IMPORTED,
    )
