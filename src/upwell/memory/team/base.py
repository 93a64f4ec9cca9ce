"""The interface of a store that machines copy, and the changes that are exchanged with it."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, Self

from msgspec import Struct

from upwell.ground.types.memory import Memory


class SharedChange(Struct, frozen=True):
    """A change in a shared project. `memory` is the new or changed memory, or None if it is gone.
    `version` is the store's version after the change."""

    id: str
    memory: Memory | None
    version: int = 0


class Cursor(Struct, frozen=True):
    """The last change that a copy of a project has applied. `version` is the version of the change,
    and `after` is the id of the changed memory. A new copy begins at version -1.

    While a copy is being filled, `version` is `-2 - base`, where `base` is the store's version when
    filling began, and `after` is the position, as `VERSION ID`. A copy only sends back the cursors
    that it receives and need not interpret them. If the copy must be filled again, the store sends
    a cursor with a lower version. The copy then removes its memories and starts again.
    """

    project: str
    version: int = -1
    after: str = ""

    @classmethod
    def filling(cls, project: str, base: int, version: int, after: str) -> Self:
        """Return the cursor of a copy that is being filled and has applied this change. Filling
        began at the version `base`."""
        return cls(project, -2 - base, f"{version} {after}")

    @property
    def base(self) -> int:
        """The version of the store when filling began, or -1 if the copy is not being filled."""
        return max(-1, -2 - self.version)

    @property
    def position(self) -> tuple[int, str]:
        """The version of the last applied change, and the id of its memory.

        Raises:
            ValueError: the cursor does not come from a store.
        """
        if self.base < 0:
            return self.version, self.after
        version, _, id = self.after.partition(" ")
        return int(version), id

    def behind(self, version: int, id: str) -> "Cursor":
        """Return the cursor of the same copy after it has applied this change."""
        if self.base < 0:
            return Cursor(self.project, version, id)
        return Cursor.filling(self.project, self.base, version, id)


class ChangePage(Struct, frozen=True):
    """The next changes of a project, sorted by version and id, and the cursor after them. `is_last`
    is True if no changes follow."""

    changes: Sequence[SharedChange]
    cursor: Cursor
    is_last: bool


class Removal(StrEnum):
    """What to do with a memory in a shared store: put it in the trash, or delete it permanently."""

    TRASH = "trash"
    PURGE = "purge"


class Outgoing(Struct, frozen=True):
    """A write that is waiting to be sent. Its `token` is unique, so a write that arrives twice
    takes effect once."""

    token: str
    id: str
    content: Memory | Removal


class RefusedWrite(Struct, frozen=True):
    """The token of a write that a shared store refused, and the reason."""

    token: str
    reason: str


VIEW = "/"
"""In an identity, separates the name of the store from the name of the part that a machine may
see."""


class SharedMemories(Protocol):
    """A store that machines copy. Every method except `follow()` raises StoreError if the store
    fails."""

    async def identity(self) -> str:
        """Return the name of the store, which does not change when the store is moved. If the
        machine may see only a part of the store, `VIEW` and the name of this part are appended."""
        ...

    async def pages(self, cursors: Sequence[Cursor]) -> Sequence[ChangePage]:
        """Return the next changes of each project. An empty page is not always the last one. For a
        new copy, and for a copy that must be filled again, the first page is empty."""
        ...

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        """Apply these writes, except those that arrived earlier. Returns the refused writes, which
        were not applied."""
        ...

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever something may have changed, until cancelled."""
        ...
