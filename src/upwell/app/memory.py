"""The memory of a home by itself, for commands about memories, notes and past sessions."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from upwell.app.files import (
    Chore,
    Files,
    Memories,
    ltm_mistakes,
    open_files,
    open_memory,
    open_ttl_store,
)
from upwell.config import Config, read_valid
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.embed import Embedder, embedder_of
from upwell.ground.errors import ConfigError, StoreError
from upwell.ground.trace import LOG, log_to
from upwell.ground.ttl_store import TtlStore
from upwell.ground.types.memory import Memory
from upwell.ground.uris import STM_ID
from upwell.memory.embedding.embeddings import Embeddings
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.topics import Topics
from upwell.memory.transfer import exported

MAX_TRASH = 1_000_000

if TYPE_CHECKING:
    from upwell.capture.inbox import Inbox
    from upwell.sessions.index import SessionIndex


class Settings(Struct, frozen=True, kw_only=True):
    """The input of `build()`. `home` defaults to `default_home()`. `flags` maps dotted keys to
    values that override `config.toml` and the environment. A `tolerant` app, which the gateway and
    the hooks use, runs without memory if the memory cannot be opened. `cwd` determines the project
    of a cue that has no folder. If `watches` is false, only `documents.refresh()` and
    `documents.lines()` read imported files again. With `waits_for_judge`, every decision waits for
    the verdict of the model that judges it.
    """

    home: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    tolerant: bool = False
    cwd: str | None = None
    clock: Clock = SYSTEM_CLOCK
    watches: bool = True
    waits_for_judge: bool = False


class MemoryApp:
    """The memory of a home. Close it with `aclose()`."""

    def __init__(self, config: Config, settings: Settings, files: Files, memory: Memories) -> None:
        self.config = config
        self.mistakes: Sequence[ConfigError] = ()
        """The mistakes in the configuration. The settings concerned are ignored."""
        self.memory = memory.library
        self.notes = memory.notes
        self.documents = memory.documents
        self.imports = memory.imports
        self.embeddings = Embeddings(memory.library.vector_indexes)
        self.topics = Topics(files.indexed, catch_up=memory.documents.catch_up)
        self._cwd = settings.cwd
        self._clock = settings.clock
        self._files = files
        self._qmd = memory.qmd
        self._ltm = memory.ltm
        self._past_sessions: SessionIndex | None = None

    @property
    def chores(self) -> Sequence[Chore]:
        """The work of `run_housekeeping()`."""
        return self._files.chores

    def past_sessions(self) -> "SessionIndex":
        """The sessions of every agent on this machine."""
        # Imported here, because the transcript readers load slowly.
        from upwell.app.past_sessions import index_of_user

        if self._past_sessions is None:
            excludes = self.config.projects.excludes
            home = self.config.home
            self._past_sessions = index_of_user(home, self._cwd, excludes, self._clock)
        return self._past_sessions

    def inbox(self) -> "Inbox":
        """The proposals that wait for a decision."""
        from upwell.capture.inbox import inbox_at

        return inbox_at(self.config.home.inbox_file)

    async def viewed(self, memories: Sequence[Memory]) -> None:
        """Note that a person has read these memories. See `mark_viewed()`."""
        ids = [memory.id for memory in memories if memory.source.startswith(STM_ID)]
        await asyncio.to_thread(mark_viewed, self.notes, ids)

    async def forget(self, memory_id: str, *, for_good: bool) -> bool:
        """Move a memory to the trash, or delete it for good. Do not learn it again from sessions.
        Returns False for an unknown id.

        Raises:
            UsageError: the memory comes from a file.
        """
        memory = await self.memory.store.get(memory_id)
        deleted = await self.memory.delete(memory_id, for_good=for_good)
        if deleted and memory is not None and memory.provenance.door == "capture":
            self.inbox().settle([memory.id])
        return deleted

    async def forget_project(self, project: str, *, for_good: bool) -> tuple[int, int]:
        """Forget a project's memories as `forget()` does, along with its short notes and its
        proposals. Memories that the project shares under its remote address stay. Returns the
        numbers of forgotten memories and notes.
        """
        memories = [memory async for memory in exported(self.memory)]
        if for_good:
            memories += await self.memory.store.trash(limit=MAX_TRASH)
        ids = [memory.id for memory in memories if memory.project == project]
        for memory_id in ids:
            await self.forget(memory_id, for_good=for_good)
        inbox = self.inbox()
        inbox.withdraw([item.id for item in inbox.waiting() if item.project == project])
        forget = partial(self.notes.forget_project, project, for_good=for_good)
        return len(ids), await asyncio.to_thread(forget)

    async def run_housekeeping(self) -> None:
        """Remove expired data, make the daily backup, and adjust what was learned."""
        for chore in self.chores:
            try:
                await chore()
            except StoreError as error:
                LOG.warning("housekeeping: %s", error)

    async def aclose(self) -> None:
        """Write pending data and close the files."""
        for other in (self._qmd, self._ltm):
            if other:
                await other.aclose()
        await self.memory.aclose()
        await self.documents.aclose()
        if self._past_sessions:
            await self._past_sessions.aclose()
        await self._files.aclose()


def mark_viewed(notes: ShortTerm, ids: Sequence[str]) -> None:
    """Keep the notes among these memories for another `stm.retention_days`. Nothing is raised if
    that fails."""
    try:
        if ids and (known := {note.id for note in notes.entries()}.intersection(ids)):
            notes.viewed(known)
    except StoreError as error:
        LOG.warning("the use of notes was not recorded: %s", error)


async def build_memory(settings: Settings) -> MemoryApp:
    """Build the memory of a home alone. For errors, see `upwell.app.build()`."""
    config, mistakes = prepared(settings)
    files, _, _, memory = await opened(config, settings)
    app = MemoryApp(config, settings, files, memory)
    app.mistakes = mistakes
    return app


def prepared(settings: Settings) -> tuple[Config, Sequence[ConfigError]]:
    """The configuration of a home, which exists afterwards, and the mistakes that are ignored.

    Raises:
        ConfigError: the file, or a key of `store.*` or `memory.*`, is at fault.
    """
    config, mistakes = read_valid(settings.home, settings.flags, settings.environment)
    mistakes += ltm_mistakes(config)
    config.home.prepare()
    log_to(config.home.logs)
    for mistake in mistakes:
        if mistake.key.startswith(("store.", "memory.")) and not settings.tolerant:
            raise mistake  # because a command would use another store than the user's
        LOG.error("ignoring an invalid setting: %s", mistake)
    return config, tuple(mistakes)


async def opened(
    config: Config, settings: Settings
) -> tuple[Files, TtlStore, Embedder | None, Memories]:
    """The open databases of a home, and its memory.

    Raises:
        ConfigError: the driver is missing, and the app is not tolerant.
        StoreError: a file cannot be used.
    """
    files = open_files(config, tolerant=settings.tolerant)
    ttl_store = open_ttl_store(config, files, settings.clock)
    embedder = embedder_of(config.embed)
    memory = open_memory(
        config,
        files,
        ttl_store,
        settings.cwd,
        embedder,
        tolerant=settings.tolerant,
        clock=settings.clock,
        watches=settings.watches,
    )
    return files, ttl_store, embedder, memory
