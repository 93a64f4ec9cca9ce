"""Everything that a home recalls from: its memories, notes, imported documents, past sessions and
other programs. For commands that search."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from upwell.app.files import export_key, open_notes, open_ttl_store
from upwell.app.store import Settings, StoreApp, has_ltm, ltm_mistakes
from upwell.config import Config
from upwell.ground.errors import StoreError
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import TtlStore
from upwell.ground.types.memory import Memory
from upwell.ground.uris import STM_ID
from upwell.memory.base import Recall
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.embedding.embeddings import Embeddings
from upwell.memory.embedding.questions import VectorIndex
from upwell.memory.external.qmd import QmdRecall
from upwell.memory.external.waiting import Patience
from upwell.memory.folder.recall import KeptRecall
from upwell.memory.library import Library
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.options import Backend
from upwell.memory.places import Places
from upwell.memory.recall import FallBack, Recalls, StoreRecall
from upwell.memory.topics import Topics
from upwell.memory.transfer import Imports, exported
from upwell.sessions.recall import States

MAX_TRASH = 1_000_000

if TYPE_CHECKING:
    from upwell.memory.external.ltm import LtmRecall
    from upwell.sessions.index import SessionIndex


class MemoryApp(StoreApp):
    """The memory of a home. Close it with `aclose()`."""

    def __init__(self, settings: Settings) -> None:
        """Like `StoreApp`, and open the other places to recall from. If `ledger.db` cannot be used,
        a store in memory takes over."""
        super().__init__(settings)
        config, clock, store = self.config, self._clock, self.memory.store
        self._ttl_store = open_ttl_store(config, self._files, clock)
        self.notes = open_notes(config, settings.cwd)
        catalog = DocumentCatalog(
            config.home.index_db,
            opened=self._files.indexed.append,
            questions=self._questions,
            clock=clock,
        )
        self.documents = Documents(
            catalog, self._sources, notes=self.notes, clock=clock, watches=settings.watches
        )
        self.qmd = open_qmd(config)
        self._ltm = _open_ltm(config, self._ttl_store)
        self._places = Places(self._ttl_store)
        states = States(config.home.sessions_db, clock=clock)
        documents: Recall = FallBack(self.qmd, self.documents) if self.qmd else self.documents
        others: list[Recall] = [states, self._ltm] if self._ltm else [states]
        own = KeptRecall(store, self.kept_folder) if settings.watches else StoreRecall(store)
        self.memory = Library(
            store,
            recall=Recalls([own, documents, *others]),
            documents=self.documents,
            passages=[place for place in (self.qmd, self._ltm, self._places, states) if place],
            places=self._places,
            clock=clock,
        )
        self.imports = Imports(
            self.memory,
            self.documents,
            self._sources,
            self.notes,
            propose=partial(_propose_rules, config.home.inbox_file),
            key=export_key(config),
        )
        self.embeddings = Embeddings(self._vector_indexes)
        self.topics = Topics(self._files.indexed, catch_up=self.documents.catch_up)
        self._files.closing.append(states.aclose)
        self._past_sessions: SessionIndex | None = None

    def past_sessions(self) -> "SessionIndex":
        """The sessions of every agent on this machine."""
        # Imported here, because the transcript readers load slowly.
        from upwell.app.past_sessions import index_of_user

        if self._past_sessions is None:
            excludes = self.config.projects.excludes
            home = self.config.home
            self._past_sessions = index_of_user(home, self._cwd, excludes, self._clock)
        return self._past_sessions

    async def viewed(self, memories: Sequence[Memory]) -> None:
        """Note that a person has read these memories. See `mark_viewed()`."""
        ids = [memory.id for memory in memories if memory.source.startswith(STM_ID)]
        await asyncio.to_thread(mark_viewed, self.notes, ids)

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

    async def _vector_indexes(self) -> list[VectorIndex]:
        """The vector indexes of the store and of the documents, or an empty list if no embedder is
        configured. If the documents' index fails, it is left out."""
        try:
            documents = await self.documents.catalog.store()
        except StoreError:
            # `Documents.ping` reports the failure.
            documents = None
        stores = (self.memory.store, documents)
        return [store.vectors for store in stores if store is not None and store.vectors]

    async def aclose(self) -> None:
        for other in (self.qmd, self._ltm):
            if other:
                await other.aclose()
        await self.documents.aclose()
        if self._past_sessions:
            await self._past_sessions.aclose()
        await super().aclose()


def mark_viewed(notes: ShortTerm, ids: Sequence[str]) -> None:
    """Keep the notes among these memories for another `stm.retention_days`. Nothing is raised if
    that fails."""
    try:
        if ids and (known := {note.id for note in notes.entries()}.intersection(ids)):
            notes.viewed(known)
    except StoreError as error:
        LOG.warning("the use of notes was not recorded: %s", error)


def _propose_rules(inbox_file: Path, rules: Iterable[Memory]) -> None:
    """Put the standing rules of an import into the inbox."""
    from upwell.capture.inbox import imported_rule, inbox_at

    inbox_at(inbox_file).propose(map(imported_rule, rules))


def _open_ltm(config: Config, ttl_store: TtlStore) -> "LtmRecall | None":
    """The memory server configured by `ltm.*`. If none of these keys is set, its modules are not
    imported."""
    if not has_ltm(config) or ltm_mistakes(config):
        return None
    from upwell.app.ltm import open_ltm

    return open_ltm(config, ttl_store, _patience_of(config))


def open_qmd(config: Config) -> QmdRecall | None:
    backend = config.memory.backend
    if backend is Backend.BUILTIN:
        return None
    return QmdRecall(backend, config.home.root, config.environment, _patience_of(config))


def _patience_of(config: Config) -> Patience:
    return Patience(
        race_seconds=config.surface.race_ms / 1000,
        max_failures=config.surface.circuit_max_failures,
        reset_seconds=config.surface.circuit_reset_seconds,
    )
