"""The interface of a team's store, as developers' machines use it."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from upwell.ground.types.memory import Memory

MAX_MEMORIES = 20_000
"""A snapshot with this many memories takes 2.7 MB on the network, and a gateway 1 s of CPU."""


class Snapshot(Struct, frozen=True):
    """The memories of the store `source` that a machine may see, as they were at one moment. `etag`
    differs when they may have changed."""

    source: str
    etag: str
    memories: Sequence[Memory]


class Removal(StrEnum):
    """What to do with a memory in a team's store: put it in the trash, or delete it permanently."""

    TRASH = "trash"
    PURGE = "purge"


class Outgoing(Struct, frozen=True):
    """A write to a team's store. Its `token` is unique, so a write that arrives twice takes effect
    once."""

    token: str
    id: str
    content: Memory | Removal


class RefusedWrite(Struct, frozen=True):
    """The token of a write that a team's store refused, and the reason."""

    token: str
    reason: str


class TeamMemories(Protocol):
    """A team's store. Every method raises StoreError if the store fails."""

    async def identity(self) -> str:
        """Return the name of the store, which does not change when the store is moved."""
        ...

    async def snapshot(self, etag: str = "") -> Snapshot | None:
        """Return the memories that this machine may see, or None if `etag` is still current."""
        ...

    async def receive(self, writes: Sequence[Outgoing]) -> Sequence[RefusedWrite]:
        """Apply these writes, except those that arrived earlier. Returns the refused writes, which
        were not applied."""
        ...
