"""What a home holds, opened: the store, the shelf, originals, the secret, and chores."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from upwell.compress.base import Tools
from upwell.compress.originals import Originals
from upwell.config import Config
from upwell.gateway.cache import Cache
from upwell.gateway.connection import Connecting, connect
from upwell.ground import shelf as shelves
from upwell.ground.backup import Backups
from upwell.ground.db import Database, open_database
from upwell.ground.embed import Embedder
from upwell.ground.errors import StoreError
from upwell.ground.files import make_once, read_whole
from upwell.ground.home import Home
from upwell.ground.llm import OpenAIChat
from upwell.ground.project import brings, project_of
from upwell.ground.redact import has_secret
from upwell.ground.shelf import MemoryShelf, Shelf, SqliteShelf
from upwell.ground.trace import LOG
from upwell.learn import missing
from upwell.learn.feedback import OWNER as FEEDBACK_OWNER
from upwell.learn.feedback import Ratings
from upwell.memory.absent import AbsentStore
from upwell.memory.base import Store
from upwell.memory.documents import Documents
from upwell.memory.imports import Imports
from upwell.memory.library import Library
from upwell.memory.meaning import Questions
from upwell.memory.options import Backend
from upwell.memory.origins import Origins
from upwell.memory.qmd import FallBack, QmdRecall
from upwell.memory.recalls import Recalls
from upwell.memory.schema import OWNER as MEMORY_OWNER
from upwell.memory.sources import OWNER as SOURCES_OWNER
from upwell.memory.sources import Sources
from upwell.memory.sqlite import SqliteStore
from upwell.memory.stm import ShortTerm
from upwell.memory.strangers import is_strangers
from upwell.memory.vectors import OWNER as VECTORS_OWNER
from upwell.wire.logins import Logins

if TYPE_CHECKING:
    from upwell.memory.ltm import LtmRecall

PROJECT_FOLDER = ".upwell"
_JOURNAL_BYTES = 16_000_000
_QUERIES_BYTES = 8_000_000
_USES_BYTES = 4_000_000
_REMARKS_BYTES = 1_000_000
_ORIGINALS_BYTES_IN_MEMORY = 64_000_000

Chore = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Files:
    """What an app has open, and what has to be done to it now and then. `indexed` are the databases
    whose rows are memories."""

    databases: list[Database] = field(default_factory=list)
    indexed: list[Database] = field(default_factory=list)
    chores: list[Chore] = field(default_factory=list)


def open_store(
    home: Home, files: Files, questions: Questions | None, *, tolerant: bool
) -> tuple[Store, Sources, Ratings | None]:
    """The store, the list of what is read where it stands, and what was said of surfacings."""
    owners = [MEMORY_OWNER, SOURCES_OWNER, VECTORS_OWNER, FEEDBACK_OWNER]
    try:
        database = open_database(home.memory_db, owners, synchronous="FULL")
    except StoreError as error:
        if not tolerant:
            raise
        LOG.error("the memory cannot be used: %s", error)
        return AbsentStore(error), Sources(None), None
    store = SqliteStore(database, questions=questions)
    files.databases.append(database)
    files.indexed.append(database)
    backups = Backups(home.memory_db, home.backups)
    files.chores.extend([store.purge, backups.make_if_due])
    return store, Sources(database), Ratings(database)


@dataclass(frozen=True, slots=True)
class Memories:
    """Everything that remembers: what is kept, short notes, what stands in files, how it comes in,
    and what was thought of it."""

    library: Library
    notes: ShortTerm
    documents: Documents
    imports: Imports
    qmd: QmdRecall | None
    ltm: "LtmRecall | None"
    recalls: Recalls
    ratings: Ratings | None


def open_memory(
    config: Config, files: Files, cwd: str | None, embedder: Embedder | None, *, tolerant: bool
) -> Memories:
    questions = Questions(embedder) if embedder else None
    store, sources, ratings = open_store(config.home, files, questions, tolerant=tolerant)
    notes = open_notes(config, cwd)
    index = config.home.index_db
    documents = Documents(
        index, sources, notes=notes, opened=files.indexed.append, questions=questions
    )
    qmd = open_qmd(config)
    ltm = _open_ltm(config)
    places = [store, FallBack(qmd, documents) if qmd else documents]
    recalls = Recalls([*places, *([ltm] if ltm else [])])
    passages = [place for place in (qmd, ltm) if place]
    library = Library(store, recall=recalls, documents=documents, passages=passages)
    imports = Imports(library, documents, sources)
    return Memories(library, notes, documents, imports, qmd, ltm, recalls, ratings)


def _open_ltm(config: Config) -> "LtmRecall | None":
    """The memory server of `ltm.*`; without any of these keys there is none, and nothing is loaded.

    Raises:
        ConfigError: keys that belong together are not all there.
    """
    if not any(key.startswith("ltm.") for key in config.values):
        return None
    from upwell.app.ltm import open_ltm

    return open_ltm(config)


def open_qmd(config: Config) -> QmdRecall | None:
    if config.memory.backend is not Backend.QMD:
        return None
    return QmdRecall(config.memory, config.home.root, config.environment)


def open_notes(config: Config, cwd: str | None) -> ShortTerm:
    """The notes of the folder's project where it keeps some (`.upwell/stm.json`), else the home's.
    A file that came with a repository or an archive is not used: its notes are not this user's."""
    open_at = partial(ShortTerm, options=config.stm, origins=Origins(config.home.origins_file))
    notes, project = open_at(config.home.notes_file), project_of(cwd)
    folder = Path(project, PROJECT_FOLDER) if project else None
    if not project or not folder or folder.is_symlink() or not folder.is_dir():
        return notes
    theirs = open_at(folder / notes.path.name, root=project)
    if not brings(project, f"{PROJECT_FOLDER}/{notes.path.name}") and not is_strangers(theirs):
        return theirs
    LOG.warning("%s was not written by this home's upwell and is not used", theirs.path)
    notes.ignored = theirs.path
    return notes


def open_shelf(config: Config, files: Files) -> Shelf:
    options = shelves.Options(
        max_bytes={
            "original": config.compress.original_max_bytes,
            "decision": _JOURNAL_BYTES,
            "response": config.cache.max_bytes,
            "query": _QUERIES_BYTES,
            "use": _USES_BYTES,
            missing.SHELF_KIND: _REMARKS_BYTES,
        }
    )
    try:
        database = open_database(config.home.ledger_db, [shelves.OWNER], synchronous="NORMAL")
    except StoreError as error:
        LOG.error("the ledger cannot be used, this process keeps its own: %s", error)
        return MemoryShelf(options=options)
    shelf = SqliteShelf(database, options=options)
    files.databases.append(database)
    files.chores.append(shelf.expire)
    return shelf


def tools_of(config: Config, embedder: Embedder | None) -> Tools:
    """What compression may use beside the text: what is configured."""
    return Tools(
        embedder=embedder,
        chat=OpenAIChat(config.llm) if config.llm.base_url else None,
        may_send=lambda text: not has_secret(text),
    )


def private_shelf() -> Shelf:
    return MemoryShelf(options=shelves.Options(max_bytes={"original": _ORIGINALS_BYTES_IN_MEMORY}))


def open_originals(config: Config, shelf: Shelf, private: Shelf) -> Originals:
    return Originals(
        durable=shelf,
        private=private,
        secret=secret_of(config.home),
        has_secret=has_secret,
        options=config.compress,
    )


def connecting(config: Config) -> Connecting:
    """How servers are reached, with the logins of this home."""
    logins = Logins(config.home.logins_file)
    return partial(connect, environment=config.environment, logins=logins)


def open_cache(config: Config, shelf: Shelf) -> Cache | None:
    """Where answers of servers are kept, if the user named any tool."""
    if not config.cache.tools:
        return None
    return Cache(shelf, secret_of(config.home), config.cache, has_secret)


def secret_of(home: Home) -> bytes:
    """The per-home secret of keys: made once, whole from the first moment it is there, 0600."""
    path = home.secret_file
    try:
        make_once(path, secrets.token_bytes(32))
        return read_whole(path)
    except OSError as error:
        LOG.warning("no secret can be kept in %s: %s", path, error)
        return secrets.token_bytes(32)
