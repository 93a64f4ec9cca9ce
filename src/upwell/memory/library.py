"""The library: what `app.memory` is. Everything that is kept goes through here, so nothing is
persisted before its secrets are masked and its files and symbols are known."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from upwell.ground.errors import UsageError
from upwell.ground.limits import SYSTEM_CLOCK, Clock, Deadline
from upwell.ground.names import LTM_ID
from upwell.ground.redact import redact
from upwell.ground.text.anchors import paths_in, symbols_in
from upwell.ground.types import DEFAULT_TENANT, Hit, Memory, Ping, Query, Scope, Trust
from upwell.memory.base import Added, Recall, Store
from upwell.memory.documents import Documents
from upwell.memory.namespaces import namespace
from upwell.memory.shape import memory_of

SEARCH_SECONDS = 10.0
"""An explicit search may take this long; automatic doors bring their own, shorter deadline."""


class Passages(Protocol):
    """What another program or server found, by the ids that it was given."""

    async def get(self, memory_id: str) -> Memory | None: ...


class Library:
    """Add, find and forget memories of one tenant, wherever they are stored.

    They are kept in `store` and found by `recall`, which may be more places than that; `documents`
    has those that are made of files and change with them, `passages` those of other programs and
    servers.
    """

    def __init__(
        self,
        store: Store,
        *,
        recall: Recall | None = None,
        documents: Documents | None = None,
        passages: Sequence[Passages] = (),
        tenant: str = DEFAULT_TENANT,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.store = store
        self.recall = recall or store
        self._documents = documents
        self._passages = passages
        self._tenant = tenant
        self._clock = clock

    async def add_many(
        self,
        items: Iterable[Memory | Mapping[str, object]],
        *,
        trust: Trust = Trust.USER,
        default_project: str | None = None,
    ) -> list[Added]:
        """Keep memories, all or none, in one transaction; in the order given.

        Items are `Memory` objects or mappings {"id"?, "text", "namespace"?, "tags"?, "paths"?,
        "symbols"?, "project"?, "source"?, "created_at"? (epoch seconds or ISO 8601)}. A given id
        is kept and replaces what had it. Secrets are masked; `Added.redacted` names the rules.
        `trust` says who stands behind mappings; `default_project` is theirs unless they name one.

        Raises:
            UsageError: an item has another shape or says nothing; the message names its place.
            StoreError: nothing was kept.
        """
        memories: list[Memory] = []
        rules: list[tuple[str, ...]] = []
        for place, item in enumerate(items):
            try:
                memory, fired = self._prepare(item, trust, default_project)
            except UsageError as error:
                raise UsageError(f"memory {place + 1}: {error.message}", hint=error.hint) from error
            memories.append(memory)
            rules.append(fired)
        added = await self.store.add(memories)
        return [replace(one, redacted=fired) for one, fired in zip(added, rules, strict=True)]

    async def add(self, memory: Memory | Mapping[str, object]) -> Added:
        """Keep one memory.

        Raises:
            UsageError, StoreError: as `add_many`; what it supersedes must be there.
        """
        prepared, fired = self._prepare(memory, Trust.USER, None)
        older = prepared.supersedes
        if older is not None and (older == prepared.id or await self.store.get(older) is None):
            raise UsageError(f"no memory {older!r} to supersede", hint="`upwell recall` shows ids")
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
        """The memories that bear on `text`, best first: by its words, and by the files and names
        of code in it. An empty text finds nothing.

        Raises:
            RecallError: the store failed.
        """
        if limit < 1 or not text.strip():
            return []
        query = Query(
            texts=(text,),
            paths=paths_in(text),
            symbols=symbols_in(text),
            scope=self._scope(project, namespaces),
            limit=limit,
        )
        return await self.recall.search(query, Deadline.after(seconds, self._clock))

    async def get(self, memory_id: str) -> Memory | None:
        """The memory, chunk or note with this id."""
        return await self.store.get(memory_id) or await self._made_of_file(memory_id)

    async def update(self, memory: Memory) -> Added:
        """Replace the memory of that id.

        Raises:
            UsageError: there is none, it is made of a file, or it says nothing.
        """
        prepared, fired = self._prepare(memory, memory.trust, None)
        await self._refuse_files(memory.id)
        await self.store.update(prepared)
        return Added(id=memory.id, redacted=fired)

    async def delete(self, memory_id: str, *, for_good: bool = False) -> bool:
        """To the trash, for 30 days; or out of everything at once, the trash too. False when there
        is none.

        Raises:
            UsageError: it is made of a file.
        """
        delete = self.store.purge if for_good else self.store.delete
        if await delete(memory_id):
            return True
        await self._refuse_files(memory_id)
        return False

    async def restore(self, memory_id: str) -> bool:
        """Back from the trash. False when it is not there."""
        return await self.store.restore(memory_id)

    async def list(
        self,
        *,
        project: str | None = None,
        namespaces: Sequence[str] = (),
        limit: int = 100,
        offset: int = 0,
    ) -> Sequence[Memory]:
        """Newest first."""
        return await self.store.list(self._scope(project, namespaces), limit=limit, offset=offset)

    async def ping(self) -> Ping:
        return await self.store.ping()

    async def aclose(self) -> None:
        """Nothing is held back: what was added is on disk. The database is closed by its owner."""

    async def _made_of_file(self, memory_id: str) -> Memory | None:
        made = await self._documents.get(memory_id) if self._documents else None
        for place in self._passages:
            made = made or await place.get(memory_id)
        return made

    async def _refuse_files(self, memory_id: str) -> None:
        if await self.store.get(memory_id) is not None:
            return
        made = await self._made_of_file(memory_id)
        if made is None:
            return
        if made.id.startswith(LTM_ID):
            raise UsageError(f"{memory_id} is kept by the server of ltm.*", hint="change it there")
        if made.lines is None:
            raise UsageError(
                f"{memory_id} is a note of stm.json", hint="change it there, or delete_memory"
            )
        first, last = made.lines
        raise UsageError(
            f"{memory_id} is made of {made.source}, lines {first} to {last}",
            hint="edit that file; it is read again at the next search",
        )

    def _scope(self, project: str | None, namespaces: Sequence[str]) -> Scope:
        return Scope(
            tenant=self._tenant,
            project=project,
            namespaces=tuple(dict.fromkeys(namespace(name) for name in namespaces)),
        )

    def _prepare(
        self, item: object, trust: Trust, default_project: str | None
    ) -> tuple[Memory, tuple[str, ...]]:
        memory = memory_of(item, trust=trust)
        if memory.pinned and memory.trust in (Trust.AGENT, Trust.TOOL):
            raise UsageError("only a person can pin a memory", hint="upwell remember --pin TEXT")
        if not isinstance(item, Memory):
            memory = replace(memory, tenant=self._tenant, project=memory.project or default_project)
        return masked(memory)


def masked(memory: Memory) -> tuple[Memory, tuple[str, ...]]:
    """A memory without secrets in any of its words, and the rules that found some."""
    fired: dict[str, None] = {}

    def clean(value: str) -> str:
        text, rules = redact(value)
        fired.update(dict.fromkeys(rules))
        return text

    without = replace(
        memory,
        text=clean(memory.text),
        source=clean(memory.source),
        tags=tuple(map(clean, memory.tags)),
        paths=tuple(map(clean, memory.paths)),
        symbols=tuple(map(clean, memory.symbols)),
    )
    return without, tuple(sorted(fired))
