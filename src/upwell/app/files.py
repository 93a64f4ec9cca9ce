"""Opens a home's files: memory, TTL store, originals and the secret."""

import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from upwell.app.team import Team, no_driver, open_team
from upwell.config import Config
from upwell.ground.clock import SYSTEM_CLOCK, Clock
from upwell.ground.clock_jump import ClockRecord
from upwell.ground.embed import Embedder
from upwell.ground.errors import ConfigError, StoreError
from upwell.ground.files import (
    create_once,
    file_exists,
    read_regular_file,
)
from upwell.ground.home import Home
from upwell.ground.project import project_of, tracks
from upwell.ground.sqlite.backup import Backups
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.trace import LOG
from upwell.ground.ttl_store import OWNER, EntryKind, TtlStore, copy_in_memory
from upwell.ground.types.memory import Memory
from upwell.learn.feedback import OWNER as FEEDBACK_OWNER
from upwell.learn.feedback import LearningStore, Ratings
from upwell.memory.base import Store, UnavailableStore
from upwell.memory.documents.catalog import DocumentCatalog
from upwell.memory.documents.recall import Documents
from upwell.memory.embedding.questions import QuestionVectors
from upwell.memory.external.qmd import QmdRecall
from upwell.memory.external.waiting import Patience
from upwell.memory.library import Library
from upwell.memory.notes.file import Origins
from upwell.memory.notes.stm import ShortTerm, is_untrusted
from upwell.memory.options import Backend
from upwell.memory.places import MAX_BYTES as _PLACES_BYTES
from upwell.memory.places import Places
from upwell.memory.recall import FallBack, Recalls, StoreRecall
from upwell.memory.sources import NoSources, Sources
from upwell.memory.sqlite.copied import OWNER as COPY_OWNER
from upwell.memory.sqlite.sources import OWNER as SOURCES_OWNER
from upwell.memory.sqlite.sources import SqliteSources
from upwell.memory.sqlite.store import OWNER as MEMORY_OWNER
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.sqlite.team_store import TeamStore
from upwell.memory.sqlite.vectors import OWNER as VECTORS_OWNER
from upwell.memory.transfer import Imports
from upwell.sessions.recall import States
from upwell.usage.audit import FileLog, Log, PostgresLog

if TYPE_CHECKING:
    from upwell.memory.external.ltm import LtmRecall
    from upwell.memory.postgres.store import PostgresStore

PROJECT_FOLDER = ".upwell"
_JOURNAL_BYTES = _RESPONSES_BYTES = 64_000_000
"""The maximum size of the journal of decisions, enough for about a hundred thousand events."""
_STEPS_BYTES = 32_000_000
_CUTS_BYTES = _WAYS_BYTES = 16_000_000
_QUERIES_BYTES = 8_000_000
_USES_BYTES = 4_000_000
_REMARKS_BYTES = 1_000_000

Chore = Callable[[], Awaitable[object]]
Secret = Callable[[], bytes]


class Files(Struct, frozen=True):
    """The open databases of an app and their periodic chores. `team` is the database that a team
    shares, `databases` are SQLite files, `indexed` are the stores of memories, and `closing` are
    the functions that close connections to other databases."""

    team: Team | None = None
    databases: list[Database] = field(default_factory=list)
    indexed: list[Store] = field(default_factory=list)
    chores: list[Chore] = field(default_factory=list)
    closing: list[Chore] = field(default_factory=list)

    async def aclose(self) -> None:
        for close in self.closing:
            await close()
        for database in self.databases:
            await database.aclose()


def open_files(config: Config, *, tolerant: bool = False) -> Files:
    """Open the team's database, if there is one. The caller adds the other databases.

    Raises:
        ConfigError: the driver is not installed, and `tolerant` is false.
    """
    try:
        team = open_team(config)
    except ConfigError as error:
        if not tolerant:
            raise
        LOG.error("running without memory: %s", error)
        return Files()
    files = Files(team=team)
    if team:
        files.closing.append(team.postgres.aclose)
    return files


def open_store(
    config: Config,
    files: Files,
    questions: QuestionVectors | None,
    *,
    tolerant: bool,
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Store, Sources, LearningStore | None]:
    """The memory store, the list of imported files, and the ratings.

    Raises:
        StoreError: `memory.db` cannot be used, and `tolerant` is false.
    """
    home = config.home
    if config.store.is_team:
        return _open_team_store(config, files, questions, clock, tolerant=tolerant)
    try:
        database = open_memory_db(home, has_copy=config.store.has_copy)
    except StoreError as error:
        if not tolerant:
            raise
        LOG.error("running without memory: %s", error)
        return UnavailableStore(error), NoSources(), None
    kind = TeamStore if config.store.has_copy else SqliteStore
    store = kind(database, questions=questions, clock=clock)
    files.databases.append(database)
    files.indexed.append(store)
    backups = Backups(home.memory_db, home.backups)
    seen = ClockRecord(home.clock_file, clock)
    files.chores.extend([seen.unless_jumped(store.purge), backups.make_if_due])
    return store, SqliteSources(database), Ratings(database)


def _open_team_store(
    config: Config,
    files: Files,
    questions: QuestionVectors | None,
    clock: Clock,
    *,
    tolerant: bool,
) -> tuple[Store, Sources, LearningStore | None]:
    """The team's store. Without the driver, there is no memory at all: the home's own store is not
    used instead, because it holds different memories."""
    team = files.team
    if team is None:
        missing = StoreError("the PostgreSQL driver is missing", hint="run `upwell doctor`")
        return UnavailableStore(missing), NoSources(), None
    from upwell.learn.postgres import PostgresRatings
    from upwell.memory.postgres.pruning import Pruning
    from upwell.memory.postgres.store import PostgresStore

    store = PostgresStore(team.postgres, tenant=team.tenant, clock=clock, questions=questions)
    files.indexed.append(store)
    pruning = Pruning(team.postgres, team.tenant, config.store.deletions_days)
    files.chores.extend([store.purge, pruning.run])
    sources = _open_sources(config.home, files, tolerant=tolerant)
    return store, sources, PostgresRatings(team.postgres, tenant=team.tenant)


def _open_sources(home: Home, files: Files, *, tolerant: bool) -> Sources:
    """The imported files of a home whose memories are in a team's database."""
    try:
        database = open_memory_db(home)
    except StoreError as error:
        if not tolerant:
            raise
        LOG.error("running without imported files: %s", error)
        return NoSources()
    files.databases.append(database)
    return SqliteSources(database)


def open_memory_db(home: Home, *, has_copy: bool = False) -> Database:
    """The database with a home's own memories, imported files and ratings, and with the copy of a
    team's memories if there is one.

    Raises:
        StoreError: the file cannot be used.
    """
    owners = [MEMORY_OWNER, SOURCES_OWNER, VECTORS_OWNER, FEEDBACK_OWNER]
    owners += [COPY_OWNER] if has_copy else []
    return open_database(home.memory_db, owners, synchronous="FULL")


def postgres_store(url: str, tenant: str) -> "PostgresStore":
    """The memories of a tenant in this database. The first use connects to it.

    Raises:
        ConfigError: the driver is not installed.
    """
    try:
        from upwell.ground.postgres.connection import Postgres
        from upwell.memory.postgres.store import PostgresStore
    except ImportError as error:
        raise no_driver() from error
    return PostgresStore(Postgres(url), tenant=tenant)


class Memories(Struct, frozen=True):
    """All parts of the memory: the library, short notes, imported documents, the places of files
    and symbols learned from sessions, other programs' memories, and ratings."""

    library: Library
    notes: ShortTerm
    documents: Documents
    imports: Imports
    places: Places
    qmd: QmdRecall | None
    ltm: "LtmRecall | None"
    recalls: Recalls
    ratings: LearningStore | None


def open_memory(
    config: Config,
    files: Files,
    ttl_store: TtlStore,
    cwd: str | None,
    embedder: Embedder | None,
    *,
    tolerant: bool,
    clock: Clock = SYSTEM_CLOCK,
    watches: bool = True,
) -> Memories:
    questions = QuestionVectors(embedder) if embedder else None
    store, sources, ratings = open_store(config, files, questions, tolerant=tolerant, clock=clock)
    notes = open_notes(config, cwd)
    catalog = DocumentCatalog(
        config.home.index_db, opened=files.indexed.append, questions=questions, clock=clock
    )
    documents = Documents(catalog, sources, notes=notes, clock=clock, watches=watches)
    qmd = open_qmd(config)
    ltm = _open_ltm(config, ttl_store, _patience_of(config))
    states = States(config.home.sessions_db, clock=clock)
    files.closing.append(states.aclose)
    searched = [StoreRecall(store), FallBack(qmd, documents) if qmd else documents, states]
    recalls = Recalls([*searched, *([ltm] if ltm else [])])
    places = Places(ttl_store)
    library = Library(
        store,
        recall=recalls,
        documents=documents,
        passages=[place for place in (qmd, ltm, places, states) if place],
        places=places,
        clock=clock,
    )
    propose = partial(_propose_rules, config.home.inbox_file)
    key = export_key(config)
    imports = Imports(library, documents, sources, notes, propose=propose, key=key)
    return Memories(library, notes, documents, imports, places, qmd, ltm, recalls, ratings)


def _propose_rules(inbox_file: Path, rules: Iterable[Memory]) -> None:
    """Put the standing rules of an import into the inbox."""
    from upwell.capture.inbox import imported_rule, inbox_at

    inbox_at(inbox_file).propose(map(imported_rule, rules))


def _open_ltm(config: Config, ttl_store: TtlStore, patience: Patience) -> "LtmRecall | None":
    """The memory server configured by `ltm.*`. If none of these keys is set, its modules are not
    imported."""
    if not _has_ltm(config) or ltm_mistakes(config):
        return None
    from upwell.app.ltm import open_ltm

    return open_ltm(config, ttl_store, patience)


def ltm_mistakes(config: Config) -> list[ConfigError]:
    """The key of `ltm.*` that another key needs and that is missing, if any."""
    if not _has_ltm(config):
        return []
    from upwell.app.ltm import server_of

    try:
        server_of(config.ltm, str(config.home.root))
    except ConfigError as mistake:
        return [mistake]
    return []


def _has_ltm(config: Config) -> bool:
    return any(key.startswith("ltm.") for key in config.values)


def open_qmd(config: Config) -> QmdRecall | None:
    if config.memory.backend is not Backend.QMD:
        return None
    return QmdRecall(config.memory, config.home.root, config.environment, _patience_of(config))


def _patience_of(config: Config) -> Patience:
    return Patience(
        race_seconds=config.surface.race_ms / 1000,
        max_failures=config.surface.circuit_max_failures,
        reset_seconds=config.surface.circuit_reset_seconds,
    )


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
        EntryKind.ORIGINAL: config.compress.original_max_bytes,
        EntryKind.DECISION: _JOURNAL_BYTES,
        EntryKind.RESPONSE: _RESPONSES_BYTES,
        EntryKind.QUERY: _QUERIES_BYTES,
        EntryKind.STEP: _STEPS_BYTES,
        EntryKind.CUT: _CUTS_BYTES,
        EntryKind.PLACE: _PLACES_BYTES,
        EntryKind.WAY: _WAYS_BYTES,
        EntryKind.USE: _USES_BYTES,
        EntryKind.COMPRESSION_REMARK: _REMARKS_BYTES,
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
        return copy_in_memory(database.path, caps, clock)
    ttl_store = TtlStore(database, caps=caps, clock=clock)
    files.databases.append(database)
    seen = ClockRecord(config.home.clock_file, clock)
    files.chores.append(seen.unless_jumped(ttl_store.expire))
    return ttl_store


def open_audit_log(config: Config, files: Files) -> Log:
    """The audit log of the home's tenant."""
    if files.team:
        return PostgresLog(files.team.postgres, files.team.tenant)
    return FileLog(config.home.audit_file)


def export_key(config: Config) -> Secret:
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
