"""The only place that constructs. `build` makes an app, `serve` runs the gateway."""

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from upwell.compress.originals import Originals
from upwell.config import Config, load
from upwell.gateway.connection import probe
from upwell.gateway.fit import Fitter, budget_of
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.server import Gateway
from upwell.gateway.workshop import Workshop, work
from upwell.ground import shelf as shelves
from upwell.ground.backup import Backups
from upwell.ground.db import Database, open_database
from upwell.ground.errors import ConfigError, StoreError, UpwellError
from upwell.ground.home import Home, default_home
from upwell.ground.pause import Pause
from upwell.ground.project import project_of
from upwell.ground.redact import has_secret, redact
from upwell.ground.shelf import MemoryShelf, Shelf, SqliteShelf
from upwell.ground.trace import LOG, log_to
from upwell.ground.types import Budget, Compressed, Ping
from upwell.memory.absent import AbsentStore
from upwell.memory.base import Store
from upwell.memory.library import Library
from upwell.memory.schema import OWNER as MEMORY_OWNER
from upwell.memory.sqlite import SqliteStore
from upwell.surface.engine import Surfacer
from upwell.surface.journal import DECISIONS
from upwell.tools.base import Toolbox
from upwell.tools.followup import read_more_tool
from upwell.tools.notes import add_tool
from upwell.tools.recall import context_tool, get_tool, search_tool
from upwell.wire.lines import Line, Sink

HOUSEKEEPING_SECONDS = 3600.0
_JOURNAL_BYTES = 16_000_000
_ORIGINALS_BYTES_IN_MEMORY = 64_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What to build from. `home` None: the user's. `flags` are dotted keys and win over the
    home's file and the environment. `tolerant`: a memory that cannot be opened is left out instead
    of failing, as the gateway needs it. `cwd` decides the project of cues that have none."""

    home: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] | None = None
    tolerant: bool = False
    cwd: str | None = None


Chore = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Files:
    """What an app has open, and what has to be done to it now and then."""

    databases: list[Database] = field(default_factory=list)
    chores: list[Chore] = field(default_factory=list)


class App:
    """Everything of one home, wired together. Close it with `aclose`."""

    def __init__(
        self,
        config: Config,
        memory: Library,
        shelf: Shelf,
        private: Shelf,
        files: Files,
        cwd: str | None,
    ) -> None:
        self.config = config
        self.memory = memory
        self.pause = Pause(config.home.pause_file)
        self.surfacer = Surfacer(
            memory.store.search,
            shelf,
            config.surfacing(),
            paused=self.pause.holds,
            mask=lambda text: redact(text)[0],
        )
        self._shelf = shelf
        self._originals = _originals(config, shelf, private)
        self._fitter = Fitter(self._originals, config.compress_for)
        environment = {**config.environment, "UPWELL_HOME": str(config.home.root)}
        self._workshop = Workshop(environment, private, config.compress.original_ttl_seconds)
        self._files = files
        self._cwd = cwd

    async def compress(
        self,
        text: str,
        *,
        strategy: str = "",
        max_tokens: int | None = None,
        max_chars: int | None = None,
        query: str = "",
        name: str = "",
    ) -> Compressed:
        """Fit a text as the gateway would, its original kept. Explicit limits are the hard cap."""
        options = self.config.compress
        if strategy:
            options = replace(options, strategy=strategy)
        budget = budget_of(options)
        if max_tokens is not None or max_chars is not None:
            budget = Budget(hard_tokens=max_tokens, hard_chars=max_chars)
        return await self._fitter.compress(text, budget, options, query=query, name=name)

    async def original(self, key: str) -> str:
        """The whole text kept under `key`.

        Raises:
            KeyUnknown: it expired, was evicted, or never was.
        """
        return await self._originals.get(key)

    def toolbox(self) -> Toolbox:
        """Our own MCP tools."""
        context = self.config.memory_context
        return Toolbox(
            [
                read_more_tool(self._originals),
                context_tool(self.surfacer.surface, self._cwd, enabled=context.enabled),
                search_tool(self.memory, project_of(self._cwd)),
                get_tool(self.memory),
                add_tool(self.memory, project_of(self._cwd)),
            ]
        )

    def gateway(self) -> Gateway:
        """The MCP gateway over this app."""
        config = self.config
        pipeline = Pipeline(
            self.surfacer,
            self._fitter.fit,
            self._workshop.fit,
            config.surface_for,
            paused=self.pause.holds,
            cwd=self._cwd,
        )
        return Gateway(
            config.servers,
            self.toolbox(),
            pipeline,
            config.gateway,
            may_compress=lambda server, tool: config.compress_for(server, tool).strategy != "none",
            environment=config.environment,
        )

    async def decisions(self) -> list[dict[str, Any]]:
        """What surfacing decided lately, oldest first."""
        found = [orjson.loads(item.value) for item in await self._shelf.scan(DECISIONS)]
        return sorted(found, key=lambda decision: decision["at"])

    async def pings(self) -> dict[str, Ping]:
        """The health of every part."""
        return {"memory": await self.memory.ping(), "shelf": await self._shelf.ping()}

    async def keep_house(self) -> None:
        """Remove what has had its time, and make the daily backup."""
        for chore in self._files.chores:
            try:
                await chore()
            except StoreError as error:
                LOG.warning("housekeeping: %s", error)

    async def aclose(self) -> None:
        """Finish what is pending and close the files."""
        await self._workshop.aclose()
        await self.surfacer.aclose()
        await self.memory.aclose()
        for database in self._files.databases:
            await database.aclose()


async def build(settings: Settings | None = None) -> App:
    """Make an app of a home: its files, its memory, its surfacing.

    Raises:
        ConfigError: the configuration is wrong.
        StoreError: a file cannot be used (a disposable one is replaced by memory instead).
    """
    settings = settings or Settings()
    config = load(settings.home, settings.flags, settings.environment)
    config.home.prepare()
    log_to(config.home.logs)
    files = Files()
    shelf = _shelf(config, files)
    memory = Library(_store(config.home, files, tolerant=settings.tolerant))
    return App(config, memory, shelf, _private_shelf(), files, settings.cwd)


async def serve(lines: AsyncIterator[Line], sink: Sink, cwd: str) -> None:
    """Run the gateway for the agent at the other end of `lines` and `sink` until it is gone."""
    app = await build(Settings(tolerant=True, cwd=cwd))
    keeping = asyncio.create_task(_keep_house(app))
    try:
        await app.gateway().serve(lines, sink)
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await app.aclose()


async def _keep_house(app: App) -> None:
    while True:
        await app.keep_house()
        await asyncio.sleep(HOUSEKEEPING_SECONDS)


async def run_workshop(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Fit what a gateway hands over, in a process of its own."""
    config = load()
    log_to(config.home.logs)
    files, private = Files(), _private_shelf()
    fitter = Fitter(_originals(config, _shelf(config, files), private), config.compress_for)
    try:
        await work(source, sink, fitter, private)
    finally:
        for database in files.databases:
            await database.aclose()


def pause(session: str | None, home: Path | None = None) -> None:
    """`upwell off`."""
    Pause(Home(home or default_home()).prepare().pause_file).begin(session)


def resume(session: str | None, home: Path | None = None) -> None:
    """`upwell on`."""
    Pause(Home(home or default_home()).prepare().pause_file).end(session)


async def decisions(home: Path) -> list[dict[str, Any]]:
    """The journal of a home, oldest first: what was decided and why."""
    app = await build(Settings(home=home, environment={}))
    try:
        return await app.decisions()
    finally:
        await app.aclose()


async def examine() -> dict[str, Ping]:
    """What `upwell doctor` shows: every part, even when one keeps the others from starting."""
    try:
        config = load()
        config.home.prepare()
    except UpwellError as error:
        part = "config" if isinstance(error, ConfigError) else "home"
        return {part: Ping(ok=False, detail=error.message, hint=error.hint)}
    app = await build(Settings(tolerant=True))
    try:
        parts = {"config": Ping(ok=True, detail=str(config.home.config_file)), **await app.pings()}
    finally:
        await app.aclose()
    servers = [server for server in config.servers if server.enabled]
    states = await asyncio.gather(
        *(probe(server, config.gateway, config.environment) for server in servers)
    )
    named = zip(servers, states, strict=True)
    return {**parts, **{f"server {server.name}": state for server, state in named}}


def _store(home: Home, files: Files, *, tolerant: bool) -> Store:
    try:
        database = open_database(home.memory_db, [MEMORY_OWNER], synchronous="FULL")
    except StoreError as error:
        if not tolerant:
            raise
        LOG.error("the memory cannot be used: %s", error)
        return AbsentStore(error)
    store = SqliteStore(database)
    files.databases.append(database)
    backups = Backups(home.memory_db, home.backups)
    files.chores.extend([store.purge, backups.make_if_due])
    return store


def _shelf(config: Config, files: Files) -> Shelf:
    options = shelves.Options(
        max_bytes={"original": config.compress.original_max_bytes, "decision": _JOURNAL_BYTES}
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


def _private_shelf() -> Shelf:
    return MemoryShelf(options=shelves.Options(max_bytes={"original": _ORIGINALS_BYTES_IN_MEMORY}))


def _originals(config: Config, shelf: Shelf, private: Shelf) -> Originals:
    return Originals(
        durable=shelf,
        private=private,
        secret=_secret(config.home),
        has_secret=has_secret,
        options=config.compress,
    )


def _secret(home: Home) -> bytes:
    """The per-home secret of keys: made once, whole from the first moment it is there, 0600."""
    path = home.secret_file
    try:
        if not path.exists():
            descriptor, fresh = tempfile.mkstemp(dir=home.root, prefix=".secret-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
            os.unlink(fresh)
        return path.read_bytes()
    except OSError as error:
        LOG.warning("no secret can be kept in %s: %s", path, error)
        return secrets.token_bytes(32)
