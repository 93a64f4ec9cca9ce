"""Imports memories, settings and servers from another program: first plans the import, then
carries it out.

A memory gets the same id on every import, so it is imported only once. If its text has changed
since, the new text replaces the old. Texts that the project already has and memories in upwell's
trash are left out.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from upwell.ground.errors import UsageError
from upwell.ground.types.memory import Memory
from upwell.memory.library import Library
from upwell.memory.records import check, content_hash, masked, validated
from upwell.memory.transfer import exported
from upwell.migration.base import (
    ImportedServer,
    Item,
    LeftOut,
    Program,
    Record,
    Setting,
    StorePlace,
)
from upwell.migration.plan import ImportPlan
from upwell.migration.projects import Projects

BATCH = 1_000
MAX_TRASH = 100_000
EMPTY = "empty"
PRESENT = "already here"
DELETED = "deleted here before; `upwell restore ID` brings it back"
SAME_TEXT = "the same text is already here"

Progress = Callable[[int, int], None]


class Configuration(Protocol):
    """The configuration file for imported settings and servers."""

    def obstacle(self, item: Setting | ImportedServer) -> str:
        """Why this setting or server cannot be written, or "" if it can."""
        ...

    def write(self, settings: Sequence[Setting], servers: Sequence[ImportedServer]) -> None:
        """Write all these settings and servers, or nothing.

        Raises:
            ConfigError, StoreUnwritable: nothing was written.
        """
        ...


class _Present(Struct, frozen=True):
    """What upwell already has: the memories whose ids also occur in the import, the ids in the
    trash, and the project and text hash of every memory.
    """

    memories: dict[str, Memory]
    deleted: set[str]
    texts: set[tuple[str | None, str]]


class MovingIn:
    """Plans an import from another program and carries it out."""

    def __init__(self, library: Library, configuration: Configuration) -> None:
        self._library = library
        self._configuration = configuration

    async def plan(
        self, program: Program, stores: Sequence[Path], place: StorePlace, projects: Projects
    ) -> ImportPlan:
        """Read a program's stores. Writes nothing.

        Raises:
            UsageError: a store cannot be read.
            StoreError: upwell's own memories cannot be read.
        """
        plan = ImportPlan(program.name, list(map(str, stores)))
        items = await asyncio.to_thread(_read, program, stores, place)
        records = [_placed(item, projects) for item in items if isinstance(item, Record)]
        self._add_memories(plan, records, await self._present(records))
        for item in items:
            if isinstance(item, LeftOut):
                plan.leave_out(item)
            elif isinstance(item, Setting | ImportedServer):
                self._add_configuration(plan, item)
        return plan

    async def carry_out(self, plan: ImportPlan, progress: Progress) -> None:
        """Write everything in the plan.

        Raises:
            StoreError, ConfigError: writing failed. The next run writes the rest.
        """
        total = len(plan.memories)
        for start in range(0, total, BATCH):
            batch = plan.memories[start : start + BATCH]
            await self._library.add_many(batch)
            progress(start + len(batch), total)
        if plan.settings or plan.servers:
            self._configuration.write(plan.settings, plan.servers)

    async def _present(self, records: Sequence[Memory | LeftOut]) -> _Present:
        ids = {memory.id for memory in records if isinstance(memory, Memory)}
        present = _Present({}, set(), set())
        if not ids:
            return present
        async for memory in exported(self._library):
            if memory.id in ids:
                present.memories[memory.id] = memory
            present.texts.add((memory.project, memory.content_hash))
        trash = await self._library.store.trash(limit=MAX_TRASH)
        present.deleted.update(memory.id for memory in trash)
        return present

    def _add_memories(
        self, plan: ImportPlan, records: Iterable[Memory | LeftOut], present: _Present
    ) -> None:
        for memory in records:
            item = memory if isinstance(memory, LeftOut) else _checked(memory)
            if isinstance(item, LeftOut):
                plan.leave_out(item)
                continue
            ready, secrets = item
            known = present.memories.get(ready.id)
            text = (ready.project, content_hash(ready.text))
            if why := _obstacle(ready, known, text, present):
                plan.leave_out(LeftOut(why, ready.text))
                continue
            present.texts.add(text)
            plan.memories.append(ready)
            plan.changed += known is not None
            plan.redacted.update(secrets)

    def _add_configuration(self, plan: ImportPlan, item: Setting | ImportedServer) -> None:
        name = item.original if isinstance(item, Setting) else item.name
        if why := self._configuration.obstacle(item):
            plan.leave_out(LeftOut(why, name))
        elif isinstance(item, Setting):
            plan.settings.append(item)
        else:
            plan.servers.append(item)


def _read(program: Program, stores: Sequence[Path], place: StorePlace) -> list[Item]:
    return [item for store in stores for item in program.read(store, place)]


def _placed(record: Record, projects: Projects) -> Memory | LeftOut:
    memory = record.memory
    if record.project_name:
        project, why = projects.place(record.project_name)
        if why:
            return LeftOut(why, memory.text)
        memory = replace(memory, project=project)
    if memory.project:
        inside = f"{memory.project}/"
        memory = replace(memory, paths=tuple(path.removeprefix(inside) for path in memory.paths))
    return memory


def _checked(memory: Memory) -> tuple[Memory, tuple[str, ...]] | LeftOut:
    """The memory as it would be stored, and the rules that masked secrets in it."""
    if not memory.text.strip():
        return LeftOut(EMPTY, memory.source)
    try:
        complete = validated(memory)
        check(complete)
    except UsageError as error:
        return LeftOut(error.message, memory.source)
    return masked(complete)


def _obstacle(
    memory: Memory, known: Memory | None, text: tuple[str | None, str], present: _Present
) -> str:
    if memory.id in present.deleted:
        return DELETED
    if known is not None and known.content_hash == text[1]:
        return PRESENT
    return SAME_TEXT if text in present.texts else ""
