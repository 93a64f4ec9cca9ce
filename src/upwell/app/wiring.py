"""The one place that wires the house together."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from upwell.app.cold import take_up
from upwell.app.files import (
    Chore,
    Files,
    Memories,
    connecting,
    open_cache,
    open_memory,
    open_originals,
    open_shelf,
    private_shelf,
    tools_of,
)
from upwell.app.learning import OfCue, Traces, open_lessons, tidy
from upwell.app.principals import SeenResources, Toolboxes
from upwell.app.settling import settle
from upwell.app.shortening import Shortening
from upwell.compress.base import Tools
from upwell.compress.originals import Kept
from upwell.config import Config, load
from upwell.gateway.definitions import Definitions
from upwell.gateway.fit import Cut, Fitter
from upwell.gateway.greeting import remember
from upwell.gateway.lists import ToolLists
from upwell.gateway.pipeline import Pipeline
from upwell.gateway.server import Gateway
from upwell.gateway.workshop import Workshop
from upwell.ground.embed import embedder_of
from upwell.ground.errors import StoreError
from upwell.ground.llm import OpenAIChat
from upwell.ground.pause import Pause
from upwell.ground.principal import OWNER, Principal
from upwell.ground.project import project_of
from upwell.ground.redact import redact
from upwell.ground.sessions import HostSessions, Joined
from upwell.ground.shelf import Shelf
from upwell.ground.trace import LOG, log_to
from upwell.ground.types import DEFAULT_NAMESPACE, Budget, Compressed, Ping, ToolCall
from upwell.hook.door import HookDoor
from upwell.learn.budgets import Budgets
from upwell.memory.embeddings import Embeddings
from upwell.memory.qmd import FallBack
from upwell.memory.strangers import ping_of
from upwell.memory.topics import Topics
from upwell.surface.engine import Surfacer
from upwell.surface.opening import LOOKED_AT
from upwell.tools import notes as note_tools
from upwell.tools.base import Toolbox
from upwell.tools.describe import describe_tool
from upwell.tools.feedback import compression_feedback_tool, feedback_tool
from upwell.tools.followup import read_more_tool, search_original_tool, select_tool
from upwell.tools.recall import context_tool, get_tool, search_tool
from upwell.tools.resources import Resources


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


class App:
    """Everything of one home, wired together. Close it with `aclose`."""

    def __init__(
        self,
        config: Config,
        memory: Memories,
        shelf: Shelf,
        private: Shelf,
        files: Files,
        tools: Tools,
        cwd: str | None,
    ) -> None:
        self.config = config
        self._surface_of: OfCue = lambda tool, window: self.config.surface_of(tool, window)
        self._strategy_of: Callable[[str, str], str] = lambda server, tool: (
            self.config.compress_for(server, tool).strategy
        )
        self.memory = memory.library
        self.notes = memory.notes
        self.documents = memory.documents
        self.imports = memory.imports
        self.embeddings = Embeddings(memory.library.store, memory.documents)
        self._qmd = memory.qmd
        self._ltm = memory.ltm
        self.recalls = memory.recalls
        self.topics = Topics(files.indexed)
        self.pause = Pause(config.home.pause_file)
        self.lessons = open_lessons(config, self._surface_of, shelf, files, memory)
        self._traces = Traces()
        self.surfacer = Surfacer(
            self.memory.recall.search,
            shelf,
            replace(config.surfacing(), of_cue=self._surface_of),
            missing=lambda: self.recalls.missing,
            paused=self.pause.holds,
            mask=lambda text: redact(text)[0],
            pinned=self.memory.store.pinned,
            chat=OpenAIChat(config.llm) if config.llm.base_url else None,
            latest=lambda scope: self.memory.store.list(scope, limit=LOOKED_AT),
            known=self.memory.get,
            lessons=self.lessons,
        )
        self._shelf = shelf
        self._originals = open_originals(config, shelf, private)
        self._tools = tools
        self.budgets = Budgets(shelf, enabled=config.learn.auto_tune)
        self.fitter = Fitter(
            self._originals,
            lambda server, tool: self.config.compress_for(server, tool),
            tools=tools,
            result_tokens=config.result_tokens(),
            ratios=self.budgets.ratios,
            shortened=self._served,
        )
        environment = {**config.environment, "UPWELL_HOME": str(config.home.root)}
        self.workshop = Workshop(
            environment,
            private,
            config.compress.original_ttl_seconds,
            ratios=self.budgets.ratios,
            shortened=self._served,
            brief=self.fitter.brief,
        )
        self._cache = open_cache(config, shelf)
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
        budget = self.fitter.budget_of(options)
        if max_tokens is not None or max_chars is not None:
            budget = Budget(hard_tokens=max_tokens, hard_chars=max_chars)
        return await self.fitter.compress(text, budget, options, query=query, name=name)

    async def original(self, key: str) -> str:
        """The whole text kept under `key`.

        Raises:
            KeyUnknown: it expired, was evicted, or never was.
        """
        return await self._originals.get(key)

    def toolbox(
        self, principal: Principal = OWNER, definitions: Definitions | None = None
    ) -> Toolbox:
        """Our own MCP tools, as a principal may use them. Short notes are in the namespace of what
        has none. `definitions` are those of all tools, where a list may be short."""
        context = self.config.memory_context
        project, status = project_of(self._cwd), self.config.shows_status()
        originals = self._originals.of(principal.name)
        makers = (note_tools.add_tool, note_tools.search_tool, note_tools.delete_tool)
        shown = makers if principal.sees(DEFAULT_NAMESPACE) else ()
        return Toolbox(
            [
                read_more_tool(originals, self._came_back),
                select_tool(originals, self._came_back),
                search_original_tool(originals, self._came_back),
                compression_feedback_tool(self.budgets.report),
                feedback_tool(self.surfacer.rate),
                context_tool(
                    self.surfacer.surface, self._cwd, enabled=context.enabled, principal=principal
                ),
                search_tool(self.memory, project, lambda: self.recalls.missing, principal),
                get_tool(
                    self.memory, self.documents.lines, project, self.lessons.opened, principal
                ),
                *(make(self.notes, project, status=status) for make in shown),
                *([describe_tool(definitions)] if definitions else []),
            ]
        )

    def gateway(self, parent: int | None = None) -> Gateway:
        """The MCP gateway over this app. One that the process `parent` started for itself takes
        part in the session that hooks of that process tell of."""
        config, project = self.config, project_of(self._cwd)
        joined = Joined(HostSessions(self._shelf), parent, self._cwd) if parent else None
        pipeline = Pipeline(
            self.surfacer,
            self.fitter.fit,
            self.workshop.fit,
            lambda server, tool: self._surface_of(f"{server}__{tool}", None),
            paused=self.pause.holds,
            cwd=self._cwd,
            cache=self._cache,
            sessions=joined,
            progressive=lambda server, tool: self._strategy_of(server, tool) == "progressive",
        )
        definitions = Definitions(config.gateway.lazy_tools_tokens)
        return Gateway(
            config.servers,
            Toolboxes(lambda principal: self.toolbox(principal, definitions)),
            pipeline,
            config.gateway,
            resources=SeenResources(partial(Resources, self.memory, self.topics, project)),
            may_compress=lambda server, tool: self._strategy_of(server, tool) != "none",
            connecting=connecting(config),
            learned=lambda known: remember(config.home, known),
            lists=ToolLists(config.home.lists_file),
            definitions=definitions,
        )

    def hooks(self) -> HookDoor:
        """The door of agents' hooks."""
        sessions = HostSessions(self._shelf)
        return HookDoor(
            self.surfacer,
            sessions,
            self.config.hook,
            settle=partial(settle, self.surfacer, self.lessons, self.config),
            elsewhere=self._elsewhere,
            shorten=Shortening(
                self.config, self._originals, self._tools, self.pause.holds, self.lessons.shortened
            ),
        )

    def _elsewhere(self, host: str, payload: Mapping[str, Any]) -> bool:
        """Cursor also runs Claude Code's hooks: where it has its own, those answer."""
        if host != "claude" or "cursor_version" not in payload:
            return False
        from upwell.hosts.install import noted

        return "cursor" in noted(self.config.home.hooks_file)

    async def decisions(self) -> list[dict[str, Any]]:
        """What surfacing decided lately, oldest first."""
        return await self.surfacer.journal.recent()

    async def pings(self) -> dict[str, Ping]:
        """The health of every part."""
        paused = self.pause.anybody()
        qmd = {"qmd": await FallBack(self._qmd, self.documents).ping()} if self._qmd else {}
        ltm = {"ltm": await self._ltm.ping()} if self._ltm else {}
        meaning = await self.embeddings.ping()
        return {
            "memory": await self.memory.ping(),
            "notes": await asyncio.to_thread(ping_of, self.notes),
            "documents": await self.documents.ping(),
            **qmd,
            **ltm,
            **({"meaning": meaning} if meaning else {}),
            "shelf": await self._shelf.ping(),
            "pause": Ping(ok=True, detail="off: `upwell on` resumes" if paused else "none"),
        }

    async def keep_house(self) -> None:
        """Remove what has had its time, and make the daily backup."""
        journal, learned = self.surfacer.journal, self.lessons.learned
        learning = partial(tidy, self.config, self._shelf, journal, learned)
        chores: list[Chore] = [*self._files.chores, self.budgets.flush, learning]
        for chore in chores:
            try:
                await chore()
            except StoreError as error:
                LOG.warning("housekeeping: %s", error)

    async def forget_notes(self) -> None:
        """Put notes aside that nobody has looked at for `stm.retention_days`."""
        try:
            if gone := await asyncio.to_thread(self.notes.clear):
                LOG.info("%d notes were forgotten", gone)
        except StoreError as error:
            LOG.warning("notes cannot be cleared: %s", error)

    def _served(self, call: ToolCall, cut: Cut) -> None:
        tool = f"{call.server}__{call.tool}"
        if cut.keys:
            self.budgets.served(tool, cut.keys)
        self._traces.note(cut.keys, call.trace_id)
        self.lessons.shortened(tool, cut.tokens_before, cut.tokens_after)

    def _came_back(self, kept: Kept) -> None:
        self.budgets.came_back(kept.key)
        self._traces.read_on(kept.key)

    async def warm(self) -> None:
        """Start what a first large result, search or look at topics would have to wait for."""
        if self._ltm:
            self._ltm.warm()
        await self.workshop.warm()
        try:
            await self.documents.refresh(project_of(self._cwd))
            await self.topics.refresh()
            await self.embeddings.catch_up()
        except StoreError as error:
            LOG.warning("what is remembered cannot be looked at: %s", error)

    async def aclose(self) -> None:
        """Finish what is pending and close the files."""
        await self.workshop.aclose()
        if self._cache:
            await self._cache.aclose()
        await self.budgets.flush()
        await self.surfacer.aclose()
        if self._ltm:
            await self._ltm.aclose()
        await self.memory.aclose()
        await self.documents.aclose()
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
    shelf = open_shelf(config, files)
    embedder = embedder_of(config.embed)
    memory = open_memory(config, files, settings.cwd, embedder, tolerant=settings.tolerant)
    tools = tools_of(config, embedder)
    app = App(config, memory, shelf, private_shelf(), files, tools, settings.cwd)
    await app.lessons.learned.take_up()
    await take_up(config.home.root, app.surfacer.journal, app.lessons)
    return app
