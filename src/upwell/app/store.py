"""A home's memories by themselves (`StoreApp`), for commands that need nothing else. They are in
`memory.db`, or in the database that a team shares; below stand the functions that open either.
Last, the report on damage to `memory.db`, and how to restore a backup.
"""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from upwell.config import Config, is_gone, read_valid
from upwell.ground.clock import SYSTEM_CLOCK, Clock, ClockRecord
from upwell.ground.errors import ConfigError, StoreError, UsageError, extra_hint
from upwell.ground.files import Home, file_exists
from upwell.ground.llm import embedder_of
from upwell.ground.sqlite.database import Database, open_database
from upwell.ground.sqlite.salvage import Backups, last_salvage
from upwell.ground.text.words import counted
from upwell.ground.trace import LOG, log_to
from upwell.ground.types.memory import Memory
from upwell.ground.types.rpc import Ping
from upwell.learn.feedback import OWNER as FEEDBACK_OWNER
from upwell.learn.feedback import LearningStore, Ratings
from upwell.memory.base import Store, UnavailableStore
from upwell.memory.library import Library
from upwell.memory.meaning import QuestionVectors
from upwell.memory.sources import OWNER as SOURCES_OWNER
from upwell.memory.sources import NoSources, Sources, SqliteSources
from upwell.memory.sqlite.store import OWNER as MEMORY_OWNER
from upwell.memory.sqlite.store import SqliteStore
from upwell.memory.sqlite.vectors import OWNER as VECTORS_OWNER

if TYPE_CHECKING:
    from upwell.capture.inbox import Inbox
    from upwell.ground.postgres.connection import Postgres
    from upwell.memory.folder import MemoryFolder
    from upwell.memory.postgres.store import PostgresStore


Chore = Callable[[], Awaitable[object]]


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


class StoreApp:
    """The memories of a home. Close it with `aclose()`."""

    def __init__(self, settings: Settings) -> None:
        """Read the configuration, prepare the home, and open its memories. Invalid settings are
        ignored (`mistakes`).

        Raises:
            ConfigError: the file, a key of `store.*` or `memory.*`, or the driver is at fault.
            StoreError: `memory.db` cannot be used.
        """
        self.config, mistakes = read_valid(settings.home, settings.flags, settings.environment)
        mistakes += ltm_mistakes(self.config)
        self.config.home.prepare()
        log_to(self.config.home.logs)
        for mistake in mistakes:
            names_store = mistake.key.startswith(("store.", "memory.")) and not is_gone(mistake.key)
            if names_store and not settings.tolerant:
                raise mistake  # because a command would use another store than the user's
            LOG.error("ignoring an invalid setting: %s", mistake)
        self.mistakes = tuple(mistakes)
        self._cwd = settings.cwd
        self._clock = settings.clock
        self._is_tolerant = settings.tolerant
        self._files = open_files(self.config, tolerant=settings.tolerant)
        self._embedder = embedder_of(self.config.embed)
        self._questions = QuestionVectors(self._embedder) if self._embedder else None
        store, self._sources, self._ratings = open_store(
            self.config,
            self._files,
            self._questions,
            tolerant=settings.tolerant,
            clock=settings.clock,
        )
        self.memory = Library(store, clock=settings.clock)

    async def open(self) -> None:
        """Finish the opening, before the first use.

        Raises:
            StoreError: a store cannot be read.
        """

    def kept_folder(self) -> "MemoryFolder | None":
        """The folder that holds every memory as a file, if there is one."""
        return self.folder if file_exists(self.config.home.folder_file) else None

    @cached_property
    def folder(self) -> "MemoryFolder":
        # Imported here, because few homes have such a folder.
        from upwell.memory.folder import MemoryFolder

        path, store = self.config.home.folder_file, self.memory.store
        return MemoryFolder(path, store, self._settle, self._shared)

    async def _shared(self) -> Collection[str]:
        """The ids of the team's memories in this home's own store."""
        if not self.config.store.has_copy:
            return ()
        from upwell.memory.sqlite.team_store import TeamStore

        store = self.memory.store
        return await store.shared() if isinstance(store, TeamStore) else ()

    async def sync_folder(self) -> None:
        """Bring the folder and the memory up to date with each other."""
        if folder := self.kept_folder():
            await folder.sync()

    async def keep_folder(self, path: Path) -> int:
        """Keep every memory as a file in this folder. Returns the number of files.

        Raises:
            UsageError: the folder cannot be used, or the memories are a team's.
        """
        self.config.projects.check(path)
        if self.config.store.is_team:
            raise UsageError("the memories are in the team's database, not in this home")
        return await self.folder.begin(path)

    def inbox(self) -> "Inbox":
        """The proposals that wait for a decision."""
        from upwell.capture.inbox import inbox_at

        return inbox_at(self.config.home.inbox_file)

    async def forget(self, memory_id: str, *, for_good: bool) -> bool:
        """Move a memory to the trash, or delete it for good. Do not learn it again from sessions.
        Returns False for an unknown id.

        Raises:
            UsageError: the memory comes from a file.
        """
        memory = await self.memory.store.get(memory_id)
        deleted = await self.memory.delete(memory_id, for_good=for_good)
        if deleted and memory is not None:
            self._settle(memory)
        return deleted

    def _settle(self, memory: Memory) -> None:
        if memory.provenance.door == "capture":
            self.inbox().settle([memory.id])

    @property
    def chores(self) -> Sequence[Chore]:
        """The work of `run_housekeeping()`."""
        return self._files.chores

    def is_housekeeping_due(self) -> bool:
        """True unless another process has done today's housekeeping, such as the daemon."""
        backups = Backups(self.config.home.memory_db, self.config.home.backups)
        return self.config.store.is_team or backups.is_due()

    async def run_housekeeping(self) -> None:
        """Remove expired data, make the daily backup, and adjust what was learned."""
        for chore in self.chores:
            try:
                await chore()
            except StoreError as error:
                LOG.warning("housekeeping: %s", error)

    async def aclose(self) -> None:
        """Write pending data and close the files."""
        await self._files.aclose()


def ltm_mistakes(config: Config) -> list[ConfigError]:
    """The key of `ltm.*` that another key needs and that is missing, if any."""
    if not has_ltm(config):
        return []
    from upwell.app.ltm import server_of

    try:
        server_of(config.ltm, str(config.home.root))
    except ConfigError as mistake:
        return [mistake]
    return []


def has_ltm(config: Config) -> bool:
    """True if any key of `ltm.*` is set."""
    return any(key.startswith("ltm.") for key in config.values)


class Files(Struct, frozen=True):
    """The open databases of an app and their periodic chores. `postgres` is the database that a
    team shares, `databases` are SQLite files, `indexed` are the stores of memories, and `closing`
    are the functions that close connections to other databases."""

    postgres: "Postgres | None" = None
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
    """Open the team's database, if all memories are there. Its first use connects. The caller adds
    the other databases.

    Raises:
        ConfigError: the driver is not installed, and `tolerant` is false.
    """
    if not config.store.is_team:
        return Files()
    try:
        postgres = postgres_at(config.store.url)
    except ConfigError as error:
        if not tolerant:
            raise
        LOG.error("running without memory: %s", error)
        return Files()
    return Files(postgres=postgres, closing=[postgres.aclose])


def postgres_at(url: str) -> "Postgres":
    """The connections to a team's database. The first use connects.

    Raises:
        ConfigError: the driver is not installed.
    """
    try:
        from upwell.ground.postgres.connection import Postgres
    except ImportError as error:
        raise no_driver() from error
    return Postgres(url)


def no_driver() -> ConfigError:
    """The error for a configuration that needs PostgreSQL, if the driver is not installed."""
    return ConfigError(
        "store.url needs the PostgreSQL driver",
        key="store.url",
        hint=extra_hint("postgres"),
    )


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
    has_copy = config.store.has_copy
    try:
        database = open_memory_db(home, has_copy=has_copy)
    except StoreError as error:
        if not tolerant:
            raise
        LOG.error("running without memory: %s", error)
        return UnavailableStore(error), NoSources(), None
    store = SqliteStore(database, questions=questions, clock=clock)
    if has_copy:
        from upwell.memory.sqlite.team_store import TeamStore
        from upwell.memory.team.exchange import WriteQueue

        queue = WriteQueue(home.team_queue_file)
        store = TeamStore(database, queue, questions=questions, clock=clock)
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
    if files.postgres is None:
        missing = StoreError("the PostgreSQL driver is missing", hint="run `upwell doctor`")
        return UnavailableStore(missing), NoSources(), None
    from upwell.learn.postgres import PostgresRatings
    from upwell.memory.postgres.store import PostgresStore

    postgres, tenant = files.postgres, config.store.tenant
    store = PostgresStore(postgres, tenant=tenant, clock=clock, questions=questions)
    files.indexed.append(store)
    files.chores.append(store.purge)
    sources = _open_sources(config.home, files, tolerant=tolerant)
    return store, sources, PostgresRatings(postgres, tenant=tenant)


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
    """The database with a home's own memories, imported files and ratings, and with the snapshot
    of a team's memories if there is one.

    Raises:
        StoreError: the file cannot be used.
    """
    owners = [MEMORY_OWNER, SOURCES_OWNER, VECTORS_OWNER, FEEDBACK_OWNER]
    if has_copy:
        from upwell.memory.sqlite import team_store
        from upwell.memory.team.exchange import WriteQueue

        owners.append(team_store.snapshot_owner(WriteQueue(home.team_queue_file)))
    return open_database(home.memory_db, owners, synchronous="FULL")


def postgres_store(url: str, tenant: str) -> "PostgresStore":
    """The memories of a tenant in this database. The first use connects to it.

    Raises:
        ConfigError: the driver is not installed.
    """
    postgres = postgres_at(url)
    from upwell.memory.postgres.store import PostgresStore

    return PostgresStore(postgres, tenant=tenant)


REPORTED_DAYS = 30
_DAY = 86_400.0


def damage(home: Home, since: float | None = None) -> Ping | None:
    """The damage found after `since` (epoch seconds), by default in the last thirty days. None if
    there was no damage, or if the damaged file was removed."""
    salvage = last_salvage(home.memory_db)
    earliest = time.time() - REPORTED_DAYS * _DAY if since is None else since
    if salvage is None or salvage.at < earliest:
        return None
    saved = f"{counted(salvage.rows, 'row', 'rows')} saved"
    if salvage.backup:
        saved += f", {salvage.restored} more taken from {home.backups / salvage.backup}"
    damaged = home.memory_db.with_name(salvage.quarantined)
    lost = "" if salvage.is_complete else "memories since the last daily backup may be missing; "
    return Ping(
        ok=False,
        detail=f"{home.memory_db} was damaged; {saved}; the damaged file is {damaged}",
        hint=f"{lost}remove {damaged.name} once everything is in order",
    )


def restoring(home: Home, copy: Path) -> str:
    """Instructions to replace `memory.db` with `copy`.

    The write-ahead log is removed first, because it belongs to the database that `copy` replaces.
    """
    store = str(home.memory_db)
    leftovers = " ".join(quote(store + suffix) for suffix in ("-wal", "-shm"))
    return (
        "to restore it, end your agents and stop every upwell process (`upwell daemon stop`), "
        f"then run: rm -f {leftovers} && cp {quote(str(copy))} {quote(store)}"
    )
