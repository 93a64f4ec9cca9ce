"""The library (`app.memory`) adds, finds and deletes memories.

It masks secrets and extracts files and symbols before it stores a memory.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from upwell.ground.clock import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.errors import UsageError
from upwell.ground.names import LTM_ID
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types.memory import Found, Hit, Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.base import (
    Added,
    CombinedReader,
    FileMemories,
    Passages,
    Recall,
    Recalls,
    Store,
    StoreRecall,
)
from upwell.memory.records import check_pin, masked, memory_of, namespace_pattern

SEARCH_SECONDS = 10.0
"""The default time limit of an explicit search. Automatic searches set a shorter one."""


class Library:
    """The memories of one tenant.

    Additions go to `store`; searches go to `recall`, which can cover more sources. `documents`,
    `passages` and `places` are as in `CombinedReader`. `reader` reads from all of them.
    """

    def __init__(
        self,
        store: Store,
        *,
        recall: Recalls | None = None,
        documents: FileMemories | None = None,
        passages: Sequence[Passages] = (),
        places: Recall | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.store = store
        self.recall = recall or Recalls([StoreRecall(store)])
        self.reader = CombinedReader(store, self.recall, places, documents, passages)
        self._clock = clock

    async def add_many(self, items: Iterable[Memory | Mapping[str, object]]) -> list[Added]:
        """Store all memories or none, in one transaction. Returns the results in the same order.

        Items are `Memory` objects or mappings {"id"?, "text", "namespace"?, "tags"?, "paths"?,
        "symbols"?, "triggers"?, "occurrences"?, "project"?, "source"?, "created_at"? (epoch seconds
        or ISO 8601)}. A memory replaces an earlier one with the same id. Secrets are masked.

        Raises:
            UsageError: an item is malformed (the message names its position) or its text is empty.
            StoreError: nothing was stored, with the exception in `Store.add()`.
        """
        memories: list[Memory] = []
        fired_rules: list[tuple[str, ...]] = []
        for number, item in enumerate(items, 1):
            try:
                memory, fired = self._prepare(item)
            except UsageError as error:
                raise UsageError(f"memory {number}: {error.message}", hint=error.hint) from error
            memories.append(memory)
            fired_rules.append(fired)
        added = await self.store.add(memories)
        return [
            replace(result, redacted=fired)
            for result, fired in zip(added, fired_rules, strict=True)
        ]

    async def add(self, memory: Memory | Mapping[str, object]) -> Added:
        """Store one memory.

        Raises:
            UsageError: as in `add_many()`, or the superseded memory does not exist.
            StoreError: nothing was stored, with the exception in `Store.add()`.
        """
        prepared, fired = self._prepare(memory)
        superseded_id = prepared.supersedes
        if superseded_id is not None and (
            superseded_id == prepared.id or await self.store.get(superseded_id) is None
        ):
            raise UsageError(
                f"no memory {superseded_id!r} to supersede", hint="`upwell recall` shows ids"
            )
        return replace((await self.store.add([prepared]))[0], redacted=fired)

    async def search(
        self,
        text: str,
        *,
        limit: int = 10,
        project: str | None = None,
        namespaces: Sequence[str] = (),
        seconds: float = SEARCH_SECONDS,
    ) -> list[Hit]:
        """Find the memories relevant to the words, files and symbols in `text`, best first. An
        empty text has no hits. Raises RecallError if every source failed."""
        found = await self.find(
            text, limit=limit, project=project, namespaces=namespaces, seconds=seconds
        )
        return list(found.hits)

    async def find(
        self,
        text: str,
        *,
        limit: int = 10,
        project: str | None = None,
        namespaces: Sequence[str] = (),
        seconds: float = SEARCH_SECONDS,
    ) -> Found:
        """Like `search()`, but also reports the sources that failed or were late."""
        if limit < 1 or not text.strip():
            return Found()
        query = Query(
            texts=(text,),
            paths=paths_in(text),
            symbols=symbols_in(text),
            scope=self._scope(project, namespaces),
            limit=limit,
        )
        return await self.recall.search(query, Deadline.after(seconds, self._clock))

    async def get(self, memory_id: str) -> Memory | None:
        return await self.reader.known(memory_id)

    async def update(self, memory: Memory) -> Added:
        """Replace the memory with the same id. Raises UsageError if the id is unknown, the memory
        comes from a file or another server, or the text is empty."""
        prepared, fired = self._prepare(memory)
        await self._refuse_derived(memory.id)
        await self.store.update(prepared)
        return Added(id=memory.id, redacted=fired)

    async def delete(self, memory_id: str, *, for_good: bool = False) -> bool:
        """Move a memory to the trash for 30 days, or delete it `for_good`. Returns False if the id
        is unknown. Raises UsageError if the memory comes from a file or another server."""
        delete = self.store.purge if for_good else self.store.delete
        if await delete(memory_id):
            return True
        await self._refuse_derived(memory_id)
        return False

    async def restore(self, memory_id: str) -> bool:
        return await self.store.restore(memory_id)

    async def list(
        self,
        *,
        project: str | None = None,
        namespaces: Sequence[str] = (),
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Memory]:
        return await self.store.list(self._scope(project, namespaces), limit=limit, offset=offset)

    async def ping(self) -> Ping:
        return await self.store.ping()

    async def _refuse_derived(self, memory_id: str) -> None:
        """Raise UsageError if the memory comes from outside the store. The message names the file
        or server where it can be changed."""
        if await self.store.get(memory_id) is not None:
            return
        memory = await self.reader.derived(memory_id)
        if memory is None:
            return
        if memory.id.startswith(LTM_ID):
            raise UsageError(
                f"{memory_id} belongs to the memory server of ltm.*", hint="change it there"
            )
        if memory.lines is None:
            raise UsageError(
                f"{memory_id} is a note of stm.json", hint="change it there, or call delete_memory"
            )
        first, last = memory.lines
        raise UsageError(
            f"{memory_id} comes from {memory.source}, lines {first} to {last}",
            hint="edit that file; the next search reads it again",
        )

    def _scope(self, project: str | None, namespaces: Sequence[str]) -> Scope:
        return Scope(
            project=project,
            namespaces=tuple(dict.fromkeys(map(namespace_pattern, namespaces))),
        )

    def _prepare(self, item: object) -> tuple[Memory, tuple[str, ...]]:
        memory = memory_of(item)
        check_pin(memory)
        return masked(memory)
