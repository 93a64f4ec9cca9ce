"""What a home remembers, what is said of it, and what is learned from that (`MemoryApp`), for
commands that search, say something or report on it. Before it stand the functions that open a
home's other files (the TTL store, notes, the audit log, secrets), and after it the texts to which
keys and citations refer, among them past sessions.
"""

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from upwell.app.shortening import Cuts, FollowUp
from upwell.app.store import Chore, Files, Settings, StoreApp, has_ltm, ltm_mistakes
from upwell.compress.originals import MAX_BYTES as ORIGINALS_BYTES
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock, ClockRecord
from upwell.ground.errors import KeyUnknown, StoreError, UsageError
from upwell.ground.files import create_once, file_exists, read_regular_file
from upwell.ground.ledger import OWNER, EntryKind, TtlStore, copied_in_memory
from upwell.ground.llm import OpenAIChat
from upwell.ground.names import QMD_SCHEME, SESSION_LOCATOR, STM_ID, memory_id, memory_uri
from upwell.ground.pause import Pause
from upwell.ground.project import is_seen, project_of, tracks
from upwell.ground.secrets.redact import has_secret
from upwell.ground.sqlite.database import open_database
from upwell.ground.trace import LOG, contained
from upwell.ground.types.memory import Memory
from upwell.learn.budgets import Budgets
from upwell.learn.implicit import Uses
from upwell.learn.learned import Learned, LearnedLimits
from upwell.memory.base import FallBack, Recall, Recalls, StoreRecall
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.external.qmd import QmdRecall
from upwell.memory.external.waiting import Patience
from upwell.memory.folder import KeptRecall
from upwell.memory.library import Library
from upwell.memory.meaning import Embeddings, VectorIndex
from upwell.memory.notes import Origins
from upwell.memory.options import Backend
from upwell.memory.places import MAX_BYTES as PLACES_BYTES
from upwell.memory.places import Places
from upwell.memory.stm import ShortTerm, is_untrusted
from upwell.memory.topics import Rarity, Topics
from upwell.memory.transfer import Imports, exported
from upwell.replay.transcripts import transcripts_of_user
from upwell.sessions.answer import answers_to, lines_of, page_of, turn_at
from upwell.sessions.index import SessionIndex, SessionScope
from upwell.sessions.recall import States
from upwell.surface.learning import Learning
from upwell.surface.options import SurfaceOptions
from upwell.surface.pipeline import Surfacer
from upwell.tools.recall import LINES_CITED, get_tool
from upwell.usage.audit import FileLog, Log, PostgresLog
from upwell.usage.events import MAX_EVENTS, Events

if TYPE_CHECKING:
    from upwell.app.capture import SessionCapture
    from upwell.app.lesson_queue import Models
    from upwell.app.lessons import LessonReader
    from upwell.app.review import Review
    from upwell.memory.external.ltm import LtmRecall

PROJECT_FOLDER = ".upwell"


def open_notes(config: Config, cwd: str | None) -> ShortTerm:
    """The notes of the folder's project (`.upwell/stm.json`) if the project has a `.upwell` folder,
    otherwise the notes of the home. A file that came with a repository or an archive
    is not used, because this user did not write its notes. Neither is a folder that came with the
    repository, unless this user has written notes in it: they might be published with it.
    """
    home, project = config.home, project_of(cwd)
    notes = ShortTerm(home.notes_file, options=config.stm, origins=Origins(home.origins_file))
    folder = Path(project, PROJECT_FOLDER) if project else None
    if not project or not folder or folder.is_symlink() or not folder.is_dir():
        return notes
    project_notes = ShortTerm(
        folder / notes.path.name,
        options=config.stm,
        origins=Origins(home.origins_file),
        root=project,
    )
    exists = file_exists(project_notes.path)
    tracked = f"{PROJECT_FOLDER}/{notes.path.name if exists else ''}"
    if not tracks(project, tracked) and not is_untrusted(project_notes):
        return project_notes
    if not exists:
        return notes
    LOG.warning("%s was not written by this home's upwell and is not used", project_notes.path)
    notes.ignored = project_notes.path
    return notes


def open_ttl_store(config: Config, files: Files, clock: Clock = SYSTEM_CLOCK) -> TtlStore:
    caps: dict[str, int] = {
        EntryKind.ORIGINAL: ORIGINALS_BYTES,
        EntryKind.RESPONSE: 64_000_000,
        EntryKind.CUT: 16_000_000,
        EntryKind.PLACE: PLACES_BYTES,
        EntryKind.WAY: 16_000_000,
        EntryKind.USE: 4_000_000,
        EntryKind.COMPRESSION_REMARK: 1_000_000,
    }
    try:
        database = open_database(config.home.ledger_db, [OWNER], synchronous="NORMAL")
    except StoreError as error:
        LOG.error("ledger.db cannot be used; this process keeps its data in memory: %s", error)
        return TtlStore(caps=caps, clock=clock)
    if database.obstacle:
        LOG.error(
            "ledger.db cannot be written; this process keeps its data in memory: %s",
            database.obstacle,
        )
        return TtlStore(copied_in_memory(database.path), caps=caps, clock=clock)
    ttl_store = TtlStore(database, caps=caps, clock=clock)
    files.databases.append(database)
    seen = ClockRecord(config.home.clock_file, clock)
    for expire in (ttl_store.expire, Events(ttl_store, clock).expire):
        files.chores.append(seen.unless_jumped(expire))
    return ttl_store


def open_audit_log(config: Config, files: Files) -> Log:
    """The audit log of the home's tenant."""
    if files.postgres:
        return PostgresLog(files.postgres, config.store.tenant)
    return FileLog(config.home.audit_file)


def export_key(config: Config) -> Callable[[], bytes]:
    """The key with which this home signs exports. Teammates have other keys: an export of theirs is
    not this user's own."""
    return partial(own_secret, config.home.export_key_file)


def own_secret(path: Path) -> bytes:
    """The content of a file, which is created once, atomically, with mode 0600. If it cannot be
    used, a secret of this process."""
    try:
        create_once(path, secrets.token_bytes(32))
        return read_regular_file(path)
    except OSError as error:
        LOG.warning("the secret in %s cannot be used: %s", path, error)
        return secrets.token_bytes(32)


def private_ttl_store() -> TtlStore:
    return TtlStore(caps={EntryKind.ORIGINAL: 64_000_000})


def open_originals(config: Config, ttl_store: TtlStore, private: TtlStore) -> Originals:
    return Originals(
        durable=ttl_store,
        private=private,
        secret=own_secret(config.home.secret_file),
        has_secret=has_secret,
        options=config.compress,
    )


MAX_TRASH = 1_000_000
INCOMPLETE = "[upwell] older sessions are not indexed yet; the next search continues with them"
REFRESH_SECONDS = 2.0
"""A search by an agent first reads new transcripts for at most this long. The next search continues
from there.
"""
MAX_TRANSCRIPT_BYTES = 20_000_000
"""How many bytes are read from the end of a transcript, where the latest compaction is recorded."""
_DAY_SECONDS, _HOUR_SECONDS = 86_400.0, 3_600.0


class MemoryApp(StoreApp):
    """A home's memories, notes, imported documents, past sessions and other places to recall from,
    with surfacing and learning. Close it with `aclose()`."""

    def __init__(self, settings: Settings) -> None:
        """Like `StoreApp`, and open everything else. If `ledger.db` cannot be used, a store in
        memory takes over."""
        super().__init__(settings)
        config, clock, store = self.config, settings.clock, self.memory.store
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
        self.pause = Pause(config.home.pause_file)
        self.learning = self._open_learning()
        self.surfacer = self._open_surfacer(waits_for_judge=settings.waits_for_judge)
        self._private = private_ttl_store()
        self.originals = open_originals(config, self._ttl_store, self._private)
        self.budgets = Budgets(self._ttl_store, enabled=config.learn.auto_tune, clock=clock)
        self.events = Events(self._ttl_store, clock)
        self.cuts = Cuts(self._ttl_store, self.originals, self.surfacer.journal, clock)
        self.follow_up = FollowUp(self.budgets, self.learning, self.cuts)
        self.texts = CitedTexts(self, self._cwd)

    def _open_learning(self) -> Learning:
        surface = self.config.surface
        limits = LearnedLimits(
            min_score=surface.min_score,
            negatives=surface.feedback_demotion_negative_threshold,
            of_tool=lambda tool: self._surface_of(tool, None).min_score,
        )
        options, uses = self.config.learn, Uses(self._ttl_store)
        learned = Learned(self._ratings, uses, options, limits, self._clock)
        rare = Rarity(self._files.indexed).rare if options.auto_tune else None

        async def used(ids: Sequence[str]) -> None:
            await asyncio.to_thread(mark_viewed, self.notes, ids)

        return Learning(learned, self._ttl_store, rare=rare, mark_used=used, clock=self._clock)

    def _open_surfacer(self, *, waits_for_judge: bool) -> Surfacer:
        config, options = self.config, self.config.surfacing()
        return Surfacer(
            self.memory.reader,
            self._ttl_store,
            dataclasses.replace(
                options,
                of_cue=self._surface_of,
                is_paused=self.pause.holds,
                commands_in=commands_in,
                judge=dataclasses.replace(options.judge, waits=waits_for_judge),
            ),
            chat=OpenAIChat(config.llm) if config.llm.base_url else None,
            learning=self.learning,
            clock=self._clock,
        )

    def _surface_of(self, tool: str | None, window: int | None) -> SurfaceOptions:
        # `config` is read on each call, because a hot reload replaces it.
        return self.config.surface_of(tool, window)

    async def open(self) -> None:
        """Load the learned values. If this fails, a tolerant app starts without them and loads them
        later."""
        try:
            await self.learning.learned.load_learned()
        except StoreError as error:
            if not self._is_tolerant:
                raise
            LOG.warning("learned values are not known yet: %s", error)

    def past_sessions(self) -> SessionIndex:
        """The sessions of every agent on this machine, and the SpecStory histories in the app's
        folder."""
        if self._past_sessions is None:
            folder = Path(self._cwd) if self._cwd else Path.home()
            self._past_sessions = SessionIndex(
                self.config.home.sessions_db,
                partial(transcripts_of_user, Path.home(), folder, None),
                excludes=self.config.projects.excludes,
                clock=self._clock,
            )
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

    def session_capture(self, *, accepts: bool = False) -> "SessionCapture":
        """Learns from sessions. With `accepts`, proposals become memories without asking."""
        # Imported here, because the transcript readers load slowly.
        from upwell.app.capture import SessionCapture
        from upwell.app.shortening import Savings

        return SessionCapture(
            self.memory,
            self._places,
            self.inbox(),
            self._ttl_store,
            accepts=accepts,
            is_excluded=self.config.projects.excludes,
            savings=partial(Savings, self.config),
        )

    def lessons(self, models: "Models | None" = None) -> "LessonReader":
        """The lessons of sessions. Without `models`, no session can be read."""
        from upwell.app.lessons import LessonReader

        return LessonReader(
            self.memory,
            self._ttl_store,
            self.learning.counts,
            self.config.lessons,
            models.of if models else lambda host: None,
            is_excluded=self.config.projects.excludes,
            clock=self._clock,
        )

    def review(self) -> "Review":
        """Offers memories for removal."""
        from upwell.app.review import Review

        return Review(self.memory, self.learning, self._ttl_store, self.inbox(), self.notes)

    async def decisions(
        self, limit: int = MAX_EVENTS, session: str | None = None
    ) -> list[dict[str, Any]]:
        """The latest decisions of one session or of all sessions, oldest first."""
        matching = {} if session is None else {"session": session}
        return (await self.surfacer.journal.latest(limit, matching=matching))[::-1]

    @property
    def chores(self) -> Sequence[Chore]:
        return [*super().chores, self.budgets.flush, self._tidy]

    async def _tidy(self) -> None:
        """Clear query texts that are too old, once a day, and adjust thresholds, once an hour."""
        surface = self.config.surface
        chore = f"queries {surface.query_retention_days} {surface.persist_query_text}"
        if await self._is_due(chore, _DAY_SECONDS):
            await self.surfacer.journal.clear_queries()
        if await self._is_due("tune", _HOUR_SECONDS):
            await self.learning.learned.tune()

    async def _is_due(self, chore: str, seconds: float) -> bool:
        """True if no process has done this chore within the last `seconds`. The chore then counts
        as done, so the caller must do it."""
        if await self._ttl_store.get(EntryKind.CHORE, [chore]):
            return False
        await self._ttl_store.put(EntryKind.CHORE, {chore: b""}, ttl_seconds=seconds)
        return True

    def is_housekeeping_due(self) -> bool:
        """True: each use of what writes to `ledger.db` also removes what has expired from it."""
        return True

    async def aclose(self) -> None:
        await self.follow_up.aclose()
        await self.budgets.flush()
        await self.cuts.aclose()
        await self.surfacer.aclose()
        for other in (self.qmd, self._ltm):
            if other:
                await other.aclose()
        await self.documents.aclose()
        if self._past_sessions:
            await self._past_sessions.aclose()
        await super().aclose()


async def forget_notes(notes: ShortTerm) -> None:
    """Move notes that nobody has read for `stm.retention_days` to the trash."""
    try:
        if removed := await asyncio.to_thread(notes.clear):
            LOG.info("%d notes expired", removed)
    except StoreError as error:
        LOG.warning("expired notes cannot be cleared: %s", error)


def mark_viewed(notes: ShortTerm, ids: Sequence[str]) -> None:
    """Keep the notes among these memories for another `stm.retention_days`. Nothing is raised if
    that fails."""
    try:
        if ids and (known := {note.id for note in notes.entries()}.intersection(ids)):
            notes.viewed(known)
    except StoreError as error:
        LOG.warning("the use of notes was not recorded: %s", error)


def _propose_rules(inbox_file: Path, rules: Iterable[Memory]) -> None:
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


def commands_in(path: str) -> Sequence[str]:
    """The commands that worked and are worth repeating; empty if the file is not a transcript that
    belongs to this user, or if its end cannot be read alone, as with Gemini CLI.
    """
    # Imported here, because few sessions are compacted.
    from upwell.episodes.failures import succeeded
    from upwell.episodes.signatures import command_of
    from upwell.replay.transcripts import events_at_end
    from upwell.sessions.turns import Run, carried

    commands = ((command_of(event), event) for event in events_at_end(path, MAX_TRANSCRIPT_BYTES))
    return carried(Run(command, succeeded(event)) for command, event in commands if command)


class CitedTexts:
    """The texts that the owner of a home may read by a key or a citation, for the project of the
    folder `cwd`."""

    def __init__(self, app: MemoryApp, cwd: str | None) -> None:
        self._app = app
        self._project = project_of(cwd)

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
            text = await self._app.originals.get(key)
        except KeyUnknown:
            if LINES_CITED.search(key):
                return await self._cited(key)
            if await self._app.memory.get(memory_id(key)) is None:
                with contained("looking for new notes"):
                    await self._app.documents.refresh()
                if await self._app.memory.get(memory_id(key)) is None:
                    raise
            return await self._cited(memory_uri(memory_id(key)))
        text = f"{lines_of(text, *line_range(lines))}\n" if lines else text
        return await self._app.follow_up.read_again(key, text)

    async def lines(
        self, citation: str, project: str | None, namespaces: Sequence[str]
    ) -> Sequence[str]:
        """The lines of an imported document, of a document that the program qmd has indexed, or of
        a turn in a past session."""
        if citation.startswith(QMD_SCHEME) and self._app.qmd is not None:
            return await self._app.qmd.lines(citation, project)
        if citation.startswith(SESSION_LOCATOR):
            environment = self._app.config.environment
            answer = await turn_at(self._app.past_sessions(), citation, environment)
            if not is_seen(answer.match.session.project, self._project):
                raise UsageError(
                    f"{citation} belongs to another project", hint="open it from there"
                )
            return page_of(answer).split("\n")
        return await self._app.documents.lines(citation, project, namespaces)

    async def search_sessions(self, question: str, limit: int) -> Sequence[str]:
        """The past sessions of this project that are most relevant to a question, a few lines for
        each. The last text is a remark if some transcripts have not been read yet. git runs with
        the app's environment."""
        past, scope = self._app.past_sessions(), SessionScope(project=self._project)
        is_complete = await past.refresh(seconds=REFRESH_SECONDS)
        environment = self._app.config.environment
        answers = await answers_to(past, question, scope, limit, environment)
        texts = ["\n".join(lines_of(answer, question)) for answer in answers]
        return texts if is_complete else [*texts, INCOMPLETE]

    async def _cited(self, citation: str) -> str:
        viewed = self._app.learning.viewed
        cited = get_tool(self._app.memory, self.lines, self._project, viewed=viewed)
        result = await cited.run({"path": citation}, "")
        return f"{result['content'][0]['text']}\n"
