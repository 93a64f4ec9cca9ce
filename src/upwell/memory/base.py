"""The protocols of memory: stores of memories, and places to recall memories from.

The suites in `tests/contracts/` check every implementation against them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, Protocol, Self

from upwell.ground.clock import Deadline
from upwell.ground.errors import StoreError
from upwell.ground.types.memory import Found, Memory, Query, Scope
from upwell.ground.types.rpc import Ping
from upwell.memory.embedding.questions import VectorIndex
from upwell.memory.ranking.scoring import Pool

__all__ = ["Added", "Found", "IndexSource", "Recall", "Store", "UnavailableStore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The outcome of adding one memory.

    `redacted` lists the rules that masked secrets. `duplicates` are the ids of exact and near
    duplicates; these are only reported, never merged.
    """

    id: str
    redacted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class Recall(Protocol):
    """A place to recall from."""

    name: str

    async def search(self, query: Query, deadline: Deadline) -> Found:
        """Find the memories relevant to `query`, most probable first, at most `query.limit`.

        Returns an empty `Found` if nothing matches. The search itself filters by tenant, project
        and namespaces.

        Raises:
            RecallError: the place failed. After the deadline, a store returns nothing, and a place
            that asks another program raises `RecallUnavailable`.
        """
        ...

    async def ping(self) -> Ping: ...


@dataclass(frozen=True, slots=True)
class WordCounts:
    """The number of memories in a store, and how many contain each word in any of its forms."""

    memories: int
    holding: Mapping[str, int]


class IndexSource(Protocol):
    """The part of a store that derived indexes read. Every method raises StoreError if the store
    fails."""

    async def changes(self) -> Hashable:
        """A token that changes whenever any process changes the store."""
        ...

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        """Id → time of the last change, for the newest memories."""
        ...

    async def get_many(self, ids: Sequence[str]) -> Sequence[Memory]:
        """The memories with these ids, in any order; missing ones are left out."""
        ...

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        """Count the memories in the whole store that contain each of these folded words."""
        ...


class Store(IndexSource, Protocol):
    """A store of one tenant's memories. Additions are durable when `add` returns."""

    name: str

    # Writing

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Store all memories or none. A memory replaces an earlier one with the same id.

        Raises:
            UsageError: a text is empty.
            StoreError: nothing was stored.
        """
        ...

    async def update(self, memory: Memory) -> None:
        """Replace the memory with the same id, but keep its time of creation.

        Raises:
            UsageError: no memory has this id.
        """
        ...

    async def delete(self, memory_id: str) -> bool:
        """Move a memory to the trash and remove it from every index. Returns False for an unknown
        id."""
        ...

    async def restore(self, memory_id: str) -> bool:
        """Bring a memory back from the trash. Returns False if the trash does not have it."""
        ...

    async def purge(self, memory_id: str | None = None) -> int:
        """Delete one memory for good, in the trash or not. Without an id, delete every memory that
        has expired or been in the trash for 30 days. Returns the number of deletions."""
        ...

    # Reading

    async def get(self, memory_id: str) -> Memory | None: ...

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """The memories of a scope, newest first."""
        ...

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """The standing rules of a scope, newest first. No search returns them, and memories of
        agents and tools are never standing rules."""
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
        needs to rank them. The pool is empty past the deadline.

        Raises:
            StoreError: the store failed.
        """
        ...

    @property
    def vectors(self) -> VectorIndex | None:
        """The vectors of this store; None if no embedder is configured."""
        ...

    async def ping(self) -> Ping: ...


@dataclass(frozen=True, slots=True)
class Change:
    """A change in a shared project: a new or changed memory, or None if the memory is gone.
    `version` is the store's version after this change."""

    id: str
    memory: Memory | None
    version: int = 0


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last change of a project that a copy has applied: its `version`, and the id of the
    changed memory in `after`. A new copy begins at version -1.

    While a copy is being filled, `version` is `-2 - base`, where `base` is the version of the store
    when filling began, and `after` is the position, `VERSION ID`. A copy only returns the cursor
    that it was given, so it can ignore bases. If it must be filled again, its cursor goes back to a
    lower version, and the copy then removes its memories first.
    """

    project: str
    version: int = -1
    after: str = ""

    @classmethod
    def filling(cls, project: str, base: int, version: int, after: str) -> Self:
        """The cursor of a copy that has been filled up to this change; filling began at the version
        `base`."""
        return cls(project, -2 - base, f"{version} {after}")

    @property
    def base(self) -> int:
        """The version of the store at which filling began; -1 for a copy that has been filled."""
        return max(-1, -2 - self.version)

    @property
    def position(self) -> tuple[int, str]:
        """The version and the memory of the last applied change.

        Raises:
            ValueError: no store has returned this cursor.
        """
        if self.base < 0:
            return self.version, self.after
        version, _, id = self.after.partition(" ")
        return int(version), id

    def behind(self, version: int, id: str) -> "Cursor":
        """The cursor after this change of the same page."""
        if self.base < 0:
            return Cursor(self.project, version, id)
        return Cursor.filling(self.project, self.base, version, id)


@dataclass(frozen=True, slots=True)
class Page:
    """The next changes of a project, in order, and the cursor after them. `is_last` is True if
    there are no more."""

    changes: Sequence[Change]
    cursor: Cursor
    is_last: bool


class Removal(StrEnum):
    """What to do with a memory in a shared store: put it in the trash, or delete it for good."""

    TRASH = "trash"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A write that is waiting to be sent. Its `token` is unique, so that a write that arrives twice
    takes effect once."""

    token: str
    id: str
    content: Memory | Removal


@dataclass(frozen=True, slots=True)
class Refused:
    """The token of a write that a shared store refused, and the reason."""

    token: str
    reason: str


VIEW = "/"
"""In an identity, separates the name of the store from that of the part that a machine may see."""


class SharedMemories(Protocol):
    """A store that machines copy. Every method raises StoreError if the store fails."""

    async def identity(self) -> str:
        """The name of the store, which does not change when the store moves. If this machine may
        see only a part, `VIEW` and a name for that part follow."""
        ...

    async def pages(self, cursors: Sequence[Cursor]) -> Sequence[Page]:
        """The next changes of each of these projects. An empty page is not always the last one: the
        first page is empty for a new copy, and for one that must start again."""
        ...

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[Refused]:
        """Apply these writes, except those that arrived earlier. Returns those that were refused
        and so not applied."""
        ...

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever something may have changed, until cancelled."""
        ...


class UnavailableStore:
    """Stands in for a store that cannot be opened. `ping` reports `error`, and every other method
    raises it. Proxied calls still work, and no addition is acknowledged."""

    name = "unavailable"
    vectors: VectorIndex | None = None

    def __init__(self, error: StoreError) -> None:
        self._error = error

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        self._refuse()

    async def update(self, memory: Memory) -> None:
        self._refuse()

    async def delete(self, memory_id: str) -> bool:
        self._refuse()

    async def restore(self, memory_id: str) -> bool:
        self._refuse()

    async def purge(self, memory_id: str | None = None) -> int:
        self._refuse()

    async def get(self, memory_id: str) -> Memory | None:
        self._refuse()

    async def get_many(self, ids: Sequence[str]) -> Sequence[Memory]:
        self._refuse()

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        self._refuse()

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        self._refuse()

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        self._refuse()

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        self._refuse()

    async def candidates(self, query: Query, deadline: Deadline) -> Pool:
        self._refuse()

    async def changes(self) -> Hashable:
        self._refuse()

    async def stamps(self, *, limit: int) -> Mapping[str, float]:
        self._refuse()

    async def word_counts(self, words: Sequence[str]) -> WordCounts:
        self._refuse()

    async def ping(self) -> Ping:
        return Ping(ok=False, detail=self._error.message, hint=self._error.hint)

    def _refuse(self) -> NoReturn:
        raise self._error
