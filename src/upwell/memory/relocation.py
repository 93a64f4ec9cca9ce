"""Move memories from one store to another while both are in use.

A move can be killed at any point and run again without duplicating anything, because the target
overwrites a memory that has the same id. The journal lists the versions that the target has
acknowledged, so a second run copies only memories that are missing or have changed. If a memory was
deleted from the target after it was copied, the move does not copy it again unless it changes in
the source.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import batched
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.files import append_lines
from upwell.ground.types.memory import Memory
from upwell.memory.base import Added, Discarded, IndexSource
from upwell.memory.meaning import Progress
from upwell.memory.records import to_json, with_sound_origin
from upwell.memory.team.sharing import addressed

BATCH = 200
"""Memories per transaction. Other writers to the target wait for at most one transaction."""
MAX_ROUNDS = 5
"""A move compares and copies at most this many times. Each further round copies the memories added
or changed during the round before."""
EVERYTHING = 2**62
NEVER = -1.0
"""The version that the journal records for a memory that was put in the trash, or that differed
after the move. No memory has this version, so a later run copies the memory if the source still has
it."""


class Movable(IndexSource, Protocol):
    """A store whose memories can be moved, in either direction."""

    async def add(self, memories: Sequence[Memory]) -> list[Added]: ...

    async def discarded(self) -> Sequence[Discarded]:
        """Everything in the trash."""
        ...

    async def discard(self, items: Sequence[Discarded]) -> None:
        """Put these memories in the trash, all or none, with their times of deletion. A stored
        memory with the same id is removed."""
        ...


class MovePlan(Struct, frozen=True, kw_only=True):
    """The steps of a move.

    `present` is the number of memories in the source. `copy` and `discard` list what the target
    lacks. `newer` lists ids that the target has in a later version. `deleted` lists ids that were
    deleted from the target after the memory last changed in the source. The move leaves the
    memories in `newer` and `deleted` alone.
    """

    present: int
    copy: Sequence[str]
    discard: Sequence[Discarded]
    newer: Sequence[str]
    deleted: Sequence[str]

    @property
    def is_done(self) -> bool:
        return not (self.copy or self.discard)


class Verified(Struct, frozen=True, kw_only=True):
    """The comparison of both stores after a move.

    `equal` counts the memories with the same fields on both sides, and `digest` is the SHA-256 of
    those fields. `changed_there` and `deleted_there` count the memories that were changed or
    deleted in the target after they were copied. `different` lists the ids of all other memories
    whose fields differ; it is empty unless the move failed.
    """

    equal: int
    digest: str
    changed_there: int = 0
    deleted_there: int = 0
    different: tuple[str, ...] = ()


class MoveJournal:
    """The versions of memories that the target has acknowledged, one line of JSON per version. A
    version is usually the time of the memory's last change."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, float]:
        """Map each memory id (with the prefix `trash:` for a deletion) to its latest version. A
        line left incomplete by a killed process is ignored."""
        versions: dict[str, float] = {}
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return versions
        for line in lines:
            try:
                key, version = json.loads(line)
                versions[str(key)] = float(version)
            except (ValueError, TypeError):
                continue
        return versions

    def append(self, versions: Mapping[str, float]) -> None:
        if not versions:
            return
        append_lines(self._path, "".join(f"{json.dumps(entry)}\n" for entry in versions.items()))


class Relocation:
    """Moves the memories of `source` to `target`. The methods raise StoreError if a store fails."""

    def __init__(self, source: Movable, target: Movable, journal: MoveJournal) -> None:
        self._source = source
        self._target = target
        self._journal = journal

    async def plan(self) -> MovePlan:
        versions = self._journal.read()
        here = await self._source.stamps(limit=EVERYTHING)
        there = await self._target.stamps(limit=EVERYTHING)
        deleted_at = {
            item.memory.id: item.deleted_at
            for item in await self._target.discarded()
            # Deletions that this move copied do not count. If the source has such a memory again,
            # it was restored there.
            if versions.get(_in_trash(item.memory.id)) != item.deleted_at
        }
        copy, newer, deleted = [], [], []
        for memory_id, version in here.items():
            if versions.get(memory_id) == version:
                continue
            if there.get(memory_id, version) > version:
                newer.append(memory_id)
            elif memory_id not in there and deleted_at.get(memory_id, version) > version:
                deleted.append(memory_id)
            else:
                copy.append(memory_id)
        discard = [
            item
            for item in await self._source.discarded()
            if item.memory.id not in here
            and versions.get(_in_trash(item.memory.id)) != item.deleted_at
            and there.get(item.memory.id, item.deleted_at) <= item.deleted_at
        ]
        return MovePlan(present=len(here), copy=copy, discard=discard, newer=newer, deleted=deleted)

    async def run(self, progress: Progress) -> Verified:
        """Copy everything that the target lacks, including memories added during the copy, and
        compare the stores. After a StoreError, the next run continues where this one stopped."""
        copied = 0
        for _ in range(MAX_ROUNDS):
            plan = await self.plan()
            if plan.is_done:
                break
            total = copied + len(plan.copy)
            for ids in batched(plan.copy, BATCH):
                memories = await self._source.get_many(ids)
                await self._target.add(memories)
                self._journal.append({memory.id: memory.updated_at or 0.0 for memory in memories})
                copied += len(ids)
                progress(copied, total)
            if items := plan.discard:
                await self._target.discard(items)
                self._journal.append({_in_trash(item.memory.id): item.deleted_at for item in items})
                self._journal.append({item.memory.id: NEVER for item in items})
        verified = await self.verify()
        # This version makes the next run copy these memories again.
        self._journal.append(dict.fromkeys(verified.different, NEVER))
        return verified

    async def add_once(self, memories: Sequence[Memory]) -> int:
        """Add memories from outside the source, except those that an earlier run added. Returns the
        number of added memories. After a StoreError, batches already added are kept, and the next
        run adds the rest."""
        versions = self._journal.read()
        new = [memory for memory in memories if memory.id not in versions]
        for batch in batched(new, BATCH):
            await self._target.add(batch)
            self._journal.append({memory.id: memory.created_at or 0.0 for memory in batch})
        return len(new)

    async def verify(self) -> Verified:
        """Read every moved memory from both stores, and compare all fields."""
        versions = self._journal.read()
        here = await self._source.stamps(limit=EVERYTHING)
        moved = sorted(id for id, version in here.items() if versions.get(id) == version)
        digest, equal, changed, deleted = hashlib.sha256(), 0, 0, 0
        different: list[str] = []
        for ids in batched(moved, BATCH):
            ours = {memory.id: memory for memory in await self._source.get_many(ids)}
            theirs = {memory.id: memory for memory in await self._target.get_many(ids)}
            for id, own in sorted(ours.items()):
                other = theirs.get(id)
                if other is None:
                    deleted += 1
                elif _fields(own) == _fields(other):
                    equal += 1
                    digest.update(_fields(other))
                elif other.updated_at != own.updated_at:
                    changed += 1
                else:
                    different.append(id)
        return Verified(
            equal=equal,
            digest=digest.hexdigest(),
            changed_there=changed,
            deleted_there=deleted,
            different=tuple(different),
        )


def _in_trash(memory_id: str) -> str:
    return f"trash:{memory_id}"


def _fields(memory: Memory) -> bytes:
    """Encode all fields of a memory except its tenant, in the form in which every store returns
    them. The project gets the name that a shared store uses for it."""
    return to_json(with_sound_origin(replace(addressed(memory), tenant=""))).encode()
