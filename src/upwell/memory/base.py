"""The protocols for memory stores, for places to recall memories from, and for what surfacing
reads. The suites in `tests/contracts/` check every implementation against them.

The second half has what works with any store: a stand-in for one that cannot be opened, recall from
one store, from several places at once or with a fallback, and the reader for surfacing.
"""

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.clock import Deadline
from upwell.ground.errors import RecallError, RecallUnavailable, StoreError, UpwellError
from upwell.ground.text.words import jaccard, terms
from upwell.ground.trace import LOG
from upwell.ground.types.memory import Found, Hit, Memory, Query, Scope, Trust
from upwell.ground.types.rpc import Ping
from upwell.memory.meaning import VectorIndex
from upwell.memory.ranking.scoring import Pool, rank


class Added(Struct, frozen=True, kw_only=True):
    """The outcome of adding one memory.

    `redacted` lists the rules that masked secrets. `duplicates` lists the ids of a few exact
    and near duplicates, which are reported but never merged.
    """

    id: str
    redacted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class Discarded(Struct, frozen=True):
    """A memory in the trash, and the time of its deletion in epoch seconds."""

    memory: Memory
    deleted_at: float


class Recall(Protocol):
    """A place to recall from."""

    name: str

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the memories relevant to `query`, most relevant first, at most `query.limit`.

        The place itself filters by tenant, project and namespaces. Raises RecallError if the place
        failed. If the deadline passes, a store returns nothing, but a place that asks another
        program raises `RecallUnavailable`."""
        ...

    async def ping(self) -> Ping: ...


class WordCounts(Struct, frozen=True):
    """The number of memories in a store, and the number that contain each word in any of its
    forms."""

    memories: int
    holding: Mapping[str, int]


class IndexSource(Protocol):
    """The part of a store that indexes are built from. Every method raises StoreError if the store
    fails."""

    async def changes(self) -> Hashable:
        """A token that changes whenever any process changes the store."""
        ...

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        """Map the ids of the newest memories to the times of their last changes."""
        ...

    async def get_many(self, ids: Sequence[str]) -> Sequence[Memory]:
        """The memories with these ids, in any order; missing ones are left out."""
        ...

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        """Count the memories in the whole store that contain each of these folded words."""
        ...


class Store(IndexSource, Protocol):
    """A store of one tenant's memories. It ignores the tenant of a memory or scope and always uses
    its own. Additions are durable when `add()` returns."""

    name: str

    # Writing

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Store all memories or none. A memory replaces an earlier one with the same id.

        Raises:
            UsageError: a text is empty.
            StoreError: nothing was stored, unless a database server was lost while it committed.
        """
        ...

    async def update(self, memory: Memory) -> None:
        """Replace the memory that has the same id, but keep its time of creation. Raises UsageError
        if no memory has this id, or the text is empty."""
        ...

    async def delete(self, memory_id: str) -> bool:
        """Move a memory to the trash and remove it from every index. Returns False if the id is
        unknown."""
        ...

    async def restore(self, memory_id: str) -> bool:
        """Bring a memory back from the trash. Returns False if the trash does not have it."""
        ...

    async def purge(self, memory_id: str | None = None) -> int:
        """Delete one memory permanently, whether or not it is in the trash. Without an id, delete
        every memory that has expired or has been in the trash for 30 days. Returns how many
        memories were deleted."""
        ...

    # Reading

    async def get(self, memory_id: str) -> Memory | None: ...

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """The memories in a scope, newest first."""
        ...

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """The standing rules in a scope, newest first. No search returns them. A memory written by
        an agent or a tool is never a standing rule."""
        ...

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        """The deleted memories that can be restored, latest deletion first."""
        ...

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Map each superseded id in `ids` to the id of its newest replacement that still exists."""
        ...

    # Searching

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        """The memories that may match `query`, with everything that `memory/ranking/scoring.py`
        needs to rank them. The pool is empty after the deadline. Raises StoreError if the store
        failed."""
        ...

    @property
    def vectors(self) -> VectorIndex | None:
        """The vector index of this store; None if no embedder is configured."""
        ...

    async def ping(self) -> Ping: ...


class Passages(Protocol):
    """Memories outside the store, found by id, such as those from files, or the latest hits from
    another program."""

    async def get(self, memory_id: str) -> Memory | None: ...


class FileMemories(Passages, Protocol):
    """Memories derived from files."""

    async def changes(self) -> Hashable: ...


class MemoryReader(Protocol):
    """The part of a `Library` that surfacing reads. All methods except `search()` raise StoreError
    if the store fails."""

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Search every place at once. Raises RecallError if every place failed, or every place that
        is searched by triggers."""
        ...

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """The standing rules in this scope, newest first."""
        ...

    async def latest(self, scope: Scope, *, limit: int = 100) -> Sequence[Memory]:
        """The latest stored memories in this scope, newest first."""
        ...

    async def known(self, memory_id: str) -> Memory | None:
        """The memory, document chunk or note with this id; None if it no longer exists."""
        ...

    async def changes(self) -> Hashable:
        """A token that changes whenever any process changes the memory. If it has changed, earlier
        results may include memories that have been deleted."""
        ...


class UnavailableStore:
    """Stands in for a store that cannot be opened, so that upwell can still proxy calls. `ping()`
    reports `error`, and every other method raises it."""

    name = "unavailable"
    vectors: VectorIndex | None = None

    def __init__(self, error: StoreError) -> None:
        self._error = error

    async def ping(self) -> Ping:
        return Ping(ok=False, detail=self._error.message, hint=self._error.hint)

    async def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    add = update = delete = restore = purge = get = get_many = list = pinned = trash = _refuse
    superseded = candidates = changes = stamps = word_counts = _refuse


RANKED_INLINE = 100
"""Ranking this many candidates blocks the event loop for about 3 ms. Larger pools are ranked in a
thread."""


class StoreRecall:
    """`Recall` over a store: ranks the store's candidates."""

    def __init__(self, store: Store) -> None:
        self.name = store.name
        self._store = store

    async def search(self, query: Query, deadline: Deadline) -> Found:
        try:
            pool = await self._store.candidates(query, deadline)
        except StoreError as error:
            raise RecallUnavailable(error.message, source=self.name, hint=error.hint) from error
        if len(pool.candidates) <= RANKED_INLINE:
            return Found(tuple(rank(pool, query)))
        return Found(tuple(await asyncio.to_thread(rank, pool, query)))

    async def ping(self) -> Ping:
        return await self._store.ping()


NEAR_DUPLICATE = 0.9
"""Texts are near duplicates if the Jaccard similarity of their words is at least this."""
REPEATED = 0.7
"""An agent's text counts as a repeat if it is at least this similar to a better hit. Repeats come
last."""
LENGTH_RATIO = 0.7
"""For near duplicates, the shorter text must have at least this share of the longer text's
length."""
MAX_COMPARED = 100
"""A hit is compared for near duplicates only with this many of the best hits."""


class Recalls:
    """`Recall` over several places: searches all of them at once and orders the hits by their
    calibrated scores.

    `Found.missing` lists the places that failed or were late. If two places return nearly the same
    text, only the more relevant hit is returned.
    """

    name = "recalls"

    def __init__(self, places: Sequence[Recall]) -> None:
        self.places = tuple(places)
        self._logged: frozenset[str] = frozenset()

    async def search(self, query: Query, deadline: Deadline) -> Found:
        loop = asyncio.get_running_loop()
        tasks = [
            asyncio.Task(place.search(query, deadline), loop=loop, eager_start=True)
            for place in self.places
        ]
        # They start eagerly, so a search of a small store is done as soon as its task exists.
        if not all(task.done() for task in tasks):
            try:
                await asyncio.wait(tasks, timeout=max(deadline.remaining(), 0.001))
            finally:
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        hits: list[tuple[Hit, int]] = []
        failures: list[UpwellError] = []
        missing: list[str] = []
        asked: list[str] = []
        for number, (place, task) in enumerate(zip(self.places, tasks, strict=True)):
            error = None if task.cancelled() else task.exception()
            if task.cancelled():
                missing.append(f"{place.name}: it took too long")
            elif error is None:
                hits += [(hit, number) for hit in task.result().hits]
                missing += task.result().missing
                asked += task.result().asked
            elif isinstance(error, UpwellError):
                failures.append(error)
                missing.append(f"{place.name}: {error.message}")
            else:
                LOG.error("searching %s failed", place.name, exc_info=error)
                fault = f"unexpected {type(error).__name__}"
                failures.append(RecallUnavailable(fault, source=place.name))
                missing.append(f"{place.name}: {fault}")
        for reason in missing:
            if reason not in self._logged:
                LOG.warning("searched without %s", reason)
        self._logged = frozenset(missing)
        if len(failures) == len(self.places):
            first = failures[0]
            raise RecallUnavailable(
                first.message, source=self.name, hint=first.hint, missing=tuple(missing)
            )
        return Found(tuple(merged(hits)[: query.limit]), tuple(missing), tuple(asked))

    async def ping(self) -> Ping:
        pings = [(place.name, await place.ping()) for place in self.places]
        failed = [(name, ping) for name, ping in pings if not ping.ok]
        detail = "; ".join(f"{name}: {ping.detail}" for name, ping in pings)
        hint = failed[0][1].hint if failed else ""
        return Ping(ok=len(failed) < len(pings), detail=detail, hint=hint)


def merged(hits: Sequence[tuple[Hit, int]]) -> list[Hit]:
    """Order hits by score, and drop near duplicates from different places. Each hit comes with the
    number of its place.

    Among hits whose scores round to the same hundredth, those written by agents come last. An
    agent's note that nearly repeats another hit comes after all other hits, so that an agent that
    repeats itself does not displace other memories.
    """
    distinct: list[tuple[Hit, int]] = []
    repeats: list[Hit] = []

    def precedence(entry: tuple[Hit, int]) -> tuple[float, bool, float]:
        hit, _ = entry
        return -round(hit.score, 2), _is_by_agent(hit), -hit.score

    for hit, place in sorted(hits, key=precedence):
        earlier = distinct[:MAX_COMPARED]
        elsewhere = [other for other, other_place in earlier if other_place != place]
        if _is_like(hit, elsewhere, NEAR_DUPLICATE):
            continue
        if _is_by_agent(hit) and _is_like(hit, [other for other, _ in earlier], REPEATED):
            repeats.append(hit)
        else:
            distinct.append((hit, place))
    return [*(hit for hit, _ in distinct), *repeats]


def _is_by_agent(hit: Hit) -> bool:
    return hit.memory.trust is Trust.AGENT


def _is_like(hit: Hit, others: Iterable[Hit], least: float) -> bool:
    text = hit.memory.text
    for other in (each.memory.text for each in others):
        shorter, longer = sorted((len(text), len(other)))
        if shorter >= LENGTH_RATIO * longer and (
            text == other or jaccard(_words(text), _words(other)) >= least
        ):
            return True
    return False


@lru_cache(maxsize=512)
def _words(text: str) -> frozenset[str]:
    return frozenset(terms(text))


FIRST_SHARE = 0.7
"""The share of the deadline that `FallBack` gives to its first place."""


class FallBack:
    """`Recall` over `first`, with `second` as the fallback."""

    def __init__(self, first: Recall, second: Recall) -> None:
        self.name = first.name
        self._first = first
        self._second = second

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Search `first`. If it fails, search `second` in the remaining time, and report the
        failure in `Found.missing`. Raises RecallError if both failed."""
        first_deadline = deadline.sooner(deadline.remaining() * FIRST_SHARE)
        try:
            return await self._first.search(query, first_deadline)
        except RecallError as error:
            found = await self._second.search(query, deadline)
            failure = f"{self.name}: {error.message}; {self._second.name} searched instead"
            return replace(found, missing=(failure, *found.missing))

    async def ping(self) -> Ping:
        """Ok if `first` is ok. If not, the detail names the place that takes over."""
        first, second = await self._first.ping(), await self._second.ping()
        if first.ok:
            return first
        instead = self._second.name if second.ok else f"{self._second.name} fails, too"
        return Ping(ok=False, detail=f"{first.detail}; instead: {instead}", hint=first.hint)


MAX_TRIGGERED = 64
"""The maximum number of memories looked up by triggers."""


class CombinedReader:
    """Implements `MemoryReader` over `store` and all other sources of memories. `everywhere`
    searches them by words, files and symbols. `places`, the locations found in past sessions, is
    searched only by triggers. `documents` contains the memories from files, and `passages` contains
    those from elsewhere, such as other programs and servers."""

    def __init__(
        self,
        store: Store,
        everywhere: Recalls,
        places: Recall | None = None,
        documents: FileMemories | None = None,
        passages: Sequence[Passages] = (),
    ) -> None:
        self._store = store
        self._everywhere = everywhere
        self._triggered = Recalls([StoreRecall(store), *([places] if places else [])])
        self._documents = documents
        self._outside = [*([documents] if documents else []), *passages]

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the memories that share a trigger with the query, followed by memories relevant to
        the query's words, files and symbols."""
        if not query.triggers:
            return await self._everywhere.search(query, deadline)
        only_triggers = replace(query, texts=(), paths=(), symbols=(), file="", limit=MAX_TRIGGERED)
        if not (query.texts or query.paths or query.symbols):
            return await self._triggered.search(only_triggers, deadline)
        exact, result = await asyncio.gather(
            self._triggered.search(only_triggers, deadline),
            self._everywhere.search(replace(query, triggers=()), deadline),
        )
        exact_ids = {hit.memory.id for hit in exact.hits}
        related = [hit for hit in result.hits if hit.memory.id not in exact_ids]
        missing = (*exact.missing, *result.missing)
        return Found((*exact.hits, *related), missing, result.asked)

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        return await self._store.pinned(scope, limit=limit)

    async def latest(self, scope: Scope, *, limit: int = 100) -> Sequence[Memory]:
        return await self._store.list(scope, limit=limit)

    async def known(self, memory_id: str) -> Memory | None:
        return await self._store.get(memory_id) or await self.derived(memory_id)

    async def derived(self, memory_id: str) -> Memory | None:
        """The memory with this id from outside the store, such as from a file or a server."""
        for passages in self._outside:
            if memory := await passages.get(memory_id):
                return memory
        return None

    async def changes(self) -> Hashable:
        documents = await self._documents.changes() if self._documents else None
        return await self._store.changes(), documents
