"""The protocols for memory stores, and for places to recall memories from.

The suites in `tests/contracts/` check every implementation against them.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import NoReturn, Protocol

from msgspec import Struct

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.types.memory import Found, Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.embedding.questions import VectorIndex
from upwell.memory.ranking.scoring import Pool

__all__ = ["Added", "Found", "IndexSource", "Recall", "Store", "UnavailableStore"]


class Added(Struct, frozen=True, kw_only=True):
    """The outcome of adding one memory.

    `redacted` lists the rules that masked secrets. `duplicates` lists the ids of a few exact
    and near duplicates, which are reported but never merged.
    """

    id: str
    redacted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class Recall(Protocol):
    """A place to recall from."""

    name: str

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the memories relevant to `query`, most relevant first, at most `query.limit`.

        The place itself filters by tenant, project and namespaces.

        Raises:
            RecallError: the place failed. If the deadline passes, a store returns nothing, but a
                place that asks another program raises `RecallUnavailable`.
        """
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
        """Replace the memory that has the same id, but keep its time of creation.

        Raises:
            UsageError: no memory has this id, or the text is empty.
        """
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
        needs to rank them. The pool is empty after the deadline.

        Raises:
            StoreError: the store failed.
        """
        ...

    @property
    def vectors(self) -> VectorIndex | None:
        """The vector index of this store; None if no embedder is configured."""
        ...

    async def ping(self) -> Ping: ...


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
