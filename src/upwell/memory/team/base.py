"""A store that machines copy, and the changes that it exchanges with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

from upwell.ground.types.memory import Memory


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
    when filling began, and `after` is the position, `VERSION ID`. A copy only sends back the
    cursor that it was given, so it can ignore bases. If the copy must be filled again, the store
    sends it a cursor with a lower version, and the copy first removes its memories.
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
    no more changes follow."""

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
"""The separator in an identity, between the name of the store and the name of the part that a
machine may see."""


class SharedMemories(Protocol):
    """A store that machines copy. Every method raises StoreError if the store fails."""

    async def identity(self) -> str:
        """The name of the store, which does not change when the store moves. If this machine may
        see only a part of it, `VIEW` and the name of that part are appended."""
        ...

    async def pages(self, cursors: Sequence[Cursor]) -> Sequence[Page]:
        """The next changes of each of these projects. An empty page is not always the last one: the
        first page is empty for a new copy, and for a copy that must be filled again."""
        ...

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[Refused]:
        """Apply these writes, except those that arrived earlier. Returns the refused ones, which
        were not applied."""
        ...

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever something may have changed, until cancelled."""
        ...
