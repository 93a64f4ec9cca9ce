"""The contracts of memory: a place to keep memories, and a place to recall them from.

What every `Store` and `Recall` must do is held by the suites in `tests/contracts/`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from upwell.ground.limits import Deadline
from upwell.ground.types import Hit, Memory, Ping, Query, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What became of one added memory.

    `redacted` names the rules by which secrets were masked, `duplicates` the ids of memories that
    say the same or nearly the same: reported, never merged.
    """

    id: str
    redacted: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()


class Recall(Protocol):
    """A place to recall from."""

    name: str

    async def search(self, query: Query, deadline: Deadline) -> list[Hit]:
        """The memories that bear on `query`, most probable first, at most `query.limit`.

        No match is an empty list. Tenant, project and namespaces are filters inside the search.

        Raises:
            RecallError: the place failed. Passing the deadline gives what is ready; another
                program that has not answered by then is `RecallUnavailable`.
        """
        ...

    async def ping(self) -> Ping: ...


class Store(Recall, Protocol):
    """A place to keep memories. What `add` returned for is on disk."""

    async def add(self, memories: Sequence[Memory]) -> list[Added]:
        """Keep them, in one transaction. A given id is kept and replaces what had it.

        Raises:
            UsageError: an empty text.
            StoreError: nothing was kept.
        """
        ...

    async def get(self, memory_id: str) -> Memory | None: ...

    async def update(self, memory: Memory) -> None:
        """Replace the memory of that id.

        Raises:
            UsageError: there is none.
        """
        ...

    async def delete(self, memory_id: str) -> bool:
        """Move it to the trash, out of every index. False when it is not there."""
        ...

    async def restore(self, memory_id: str) -> bool:
        """Bring it back from the trash. False when it is not there."""
        ...

    async def trash(self, *, limit: int = 100) -> Sequence[Memory]:
        """What was deleted and can be restored, the latest first."""
        ...

    async def purge(self, memory_id: str | None = None) -> int:
        """Remove for good: one memory wherever it stands, or what has had its time in the trash
        and what has expired. Returns how many."""
        ...

    async def pinned(self, scope: Scope, *, limit: int = 50) -> Sequence[Memory]:
        """The standing rules of this scope, newest first. No search finds them, and what an agent
        or a tool said is never one."""
        ...

    async def superseded(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Of these memories those that were superseded, each with the id of the newest living
        one that stands for it."""
        ...

    async def list(self, scope: Scope, *, limit: int = 100, offset: int = 0) -> Sequence[Memory]:
        """Newest first."""
        ...
