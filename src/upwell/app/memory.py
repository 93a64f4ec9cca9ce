"""Everything that a home recalls from: its memories, notes, imported documents, past sessions and
other programs. For commands that search.

Past sessions, for the command line and for upwell's MCP tools.

Reads the texts to which keys and citations refer: originals of shortened results, memories,
documents and past sessions.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from upwell.app.files import export_key, open_notes, open_ttl_store
from upwell.app.shortening import FollowUp
from upwell.app.store import Settings, StoreApp, has_ltm, ltm_mistakes
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.ground.clock import Clock
from upwell.ground.errors import KeyUnknown, StoreError, UsageError
from upwell.ground.home import Home
from upwell.ground.ledger import TtlStore
from upwell.ground.names import QMD_SCHEME, SESSION_LOCATOR, STM_ID, memory_id, memory_uri
from upwell.ground.project import is_seen, project_of
from upwell.ground.trace import LOG, contained
from upwell.ground.types.memory import Memory
from upwell.memory.base import FallBack, Recall, Recalls, StoreRecall
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.external.qmd import QmdRecall
from upwell.memory.external.waiting import Patience
from upwell.memory.folder.sync import KeptRecall
from upwell.memory.library import Library
from upwell.memory.meaning import Embeddings, VectorIndex
from upwell.memory.notes.stm import ShortTerm
from upwell.memory.options import Backend
from upwell.memory.places import Places
from upwell.memory.topics import Topics
from upwell.memory.transfer import Imports, exported
from upwell.replay.transcripts import transcripts_of_user
from upwell.sessions.answer import answers_to, lines_of, page_of, turn_at
from upwell.sessions.index import SessionIndex, SessionScope
from upwell.sessions.recall import States
from upwell.tools.recall import LINES_CITED, Viewed, get_tool

if TYPE_CHECKING:
    from upwell.memory.external.ltm import LtmRecall

INCOMPLETE = "[upwell] older sessions are not indexed yet; the next search continues with them"
REFRESH_SECONDS = 2.0
"""A search by an agent first reads new transcripts for at most this long. The next search continues
from there.
"""


def index_of_user(
    home: Home, cwd: str | None, excludes: Callable[[str], bool], clock: Clock
) -> SessionIndex:
    """The index of this user's sessions with every agent, and of the SpecStory histories in the
    folder `cwd`. Folders for which `excludes()` is true are left out."""
    folder = Path(cwd) if cwd else Path.home()
    transcripts = partial(transcripts_of_user, Path.home(), folder, None)
    return SessionIndex(home.sessions_db, transcripts, excludes=excludes, clock=clock)


class SeenSessions:
    """The past sessions that an agent working in `project` may see, as text. git runs with the
    variables in `environment`."""

    def __init__(
        self, index: SessionIndex, project: str | None, environment: Mapping[str, str]
    ) -> None:
        self._index = index
        self._project = project
        self._environment = environment

    async def search(self, question: str, limit: int) -> Sequence[str]:
        """A few lines for each of the sessions most relevant to the question. The last text is a
        remark if some transcripts have not been read yet.
        """
        is_complete = await self._index.refresh(seconds=REFRESH_SECONDS)
        scope = SessionScope(project=self._project)
        answers = await answers_to(self._index, question, scope, limit, self._environment)
        texts = ["\n".join(lines_of(answer, question)) for answer in answers]
        return texts if is_complete else [*texts, INCOMPLETE]

    async def page(self, locator: str) -> str:
        """The whole text of a turn.

        Raises:
            UsageError: this project has no session with that locator.
        """
        answer = await turn_at(self._index, locator, self._environment)
        if not is_seen(answer.match.session.project, self._project):
            raise UsageError(f"{locator} belongs to another project", hint="open it from there")
        return page_of(answer)


MAX_TRASH = 1_000_000


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
        for id in ids:
            await self.forget(id, for_good=for_good)
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


class CitedTexts:
    """The texts that the owner of a home may read by a key or a citation. `cwd` determines the
    project. `viewed()` is called with the memories that were read."""

    def __init__(
        self,
        app: MemoryApp,
        originals: Originals,
        follow_up: FollowUp,
        viewed: Viewed,
        past: "Callable[[], SeenSessions]",
        cwd: str | None,
    ) -> None:
        self._app = app
        self._originals = originals
        self._follow_up = follow_up
        self._viewed = viewed
        self._past = past
        self._cwd = cwd

    async def read(self, key: str, lines: str = "") -> str:
        """The text behind `key`, which is the key of an original, the id of a memory, or a citation
        such as `upwell://memory/ID`. `lines` selects a part of an original, such as `120-180`.

        Raises:
            KeyUnknown: the original expired, was evicted, or never existed.
            UsageError: `lines` is not a range, or there is no such memory, document or session.
        """
        if "://" in key or key.startswith("["):
            return await self._cited(key)
        from upwell.compress.folding import line_range, lines_of

        try:
            text = await self._originals.get(key)
        except KeyUnknown:
            if LINES_CITED.search(key):
                return await self._cited(key)
            if not await self._is_memory(memory_id(key)):
                raise
            return await self._cited(memory_uri(memory_id(key)))
        text = f"{lines_of(text, *line_range(lines))}\n" if lines else text
        return await self._follow_up.read_again(key, text)

    async def lines(
        self, citation: str, project: str | None, namespaces: Sequence[str]
    ) -> Sequence[str]:
        """The lines of an imported document, of a document that the program qmd has indexed, or of
        a turn in a past session."""
        if citation.startswith(QMD_SCHEME) and self._app.qmd is not None:
            return await self._app.qmd.lines(citation, project)
        if citation.startswith(SESSION_LOCATOR):
            return (await self._past().page(citation)).split("\n")
        return await self._app.documents.lines(citation, project, namespaces)

    async def search_sessions(self, question: str, limit: int) -> Sequence[str]:
        """The past sessions of this project that match a question, one text for each. A remark may
        follow."""
        return await self._past().search(question, limit)

    async def _is_memory(self, memory_id: str) -> bool:
        if await self._app.memory.get(memory_id) is None:
            with contained("looking for new notes"):
                await self._app.documents.refresh()
        return await self._app.memory.get(memory_id) is not None

    async def _cited(self, citation: str) -> str:
        cited = get_tool(self._app.memory, self.lines, project_of(self._cwd), viewed=self._viewed)
        result = await cited.run({"path": citation}, "")
        return f"{result['content'][0]['text']}\n"
