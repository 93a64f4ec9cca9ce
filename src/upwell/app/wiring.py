"""Builds every part of upwell and connects them: `App`, and `build()`, which opens it. Before them
stand upwell's own MCP tools and resources, limited to what a principal (a user of the gateway) may
use.
"""

import asyncio
import dataclasses
import difflib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from upwell.app.local_copy import copy_ping, keep_copy
from upwell.app.memory import CitedTexts, MemoryApp, open_audit_log, own_secret
from upwell.app.reporting import report_of
from upwell.app.shortening import Shortening, read_command
from upwell.app.store import Chore, Settings
from upwell.app.turns import answered_elsewhere, commands_in, end_turn, has_noted, tool_name
from upwell.compress.base import Tools
from upwell.compress.options import CompressOptions
from upwell.config import Config
from upwell.gateway.calls.cache import Cache
from upwell.gateway.calls.fit import Fitter
from upwell.gateway.calls.pipeline import CallSurfacing, Fitting, Pipeline
from upwell.gateway.calls.worker_pool import WorkerPool
from upwell.gateway.clients import Client
from upwell.gateway.front.handshake import save_offer
from upwell.gateway.options import ServerOptions
from upwell.gateway.server import Gateway, GatewayRecords, OwnServer, ToolListing
from upwell.gateway.upstreams.connection import Connecting, connect
from upwell.gateway.upstreams.tool_lists import ToolLists
from upwell.ground.errors import StoreError, UsageError
from upwell.ground.host_sessions import HostSessions, JoinedSessions
from upwell.ground.llm import Embedder, OpenAIChat
from upwell.ground.project import project_of
from upwell.ground.secrets.redact import has_secret
from upwell.ground.trace import LOG
from upwell.ground.types.compression import Budget, Compressed
from upwell.ground.types.memory import DEFAULT_NAMESPACE
from upwell.ground.types.rpc import OWNER, Ping, Principal, Reply
from upwell.hook.asking import AgentAsking
from upwell.hook.door import HookDoor, HookParts, TurnEnd
from upwell.hosts import HOSTS
from upwell.memory.base import FallBack, Recall, StoreRecall
from upwell.memory.stm import ping_of
from upwell.surface.judge import judge_ping
from upwell.surface.rules import Guards
from upwell.tools import notes as note_tools
from upwell.tools.base import Record, Toolbox
from upwell.tools.feedback import Served, compression_feedback_tool, feedback_tool, stats_tool
from upwell.tools.followup import read_more_tool, search_original_tool, select_tool
from upwell.tools.recall import context_tool, get_tool, search_tool
from upwell.tools.resources import Resources
from upwell.usage.audit import Audit
from upwell.wire.logins import Logins

if TYPE_CHECKING:
    from upwell.ground.postgres.connection import Postgres

MAX_TOOLBOXES = 500
NameOf = Callable[[str, str], tuple[str, Sequence[str]]]
"""Returns a server's own name for a tool, and all known names of the server's tools."""


class ToolsAndResources(Protocol):
    """The part of an app that makes the tools and resources of a principal."""

    def toolbox(self, principal: Principal, name_of: NameOf | None) -> Toolbox: ...

    def resources(self, principal: Principal) -> Resources: ...


class Toolboxes:
    """Lists the same tools for all principals, and runs each call in its caller's toolbox."""

    def __init__(self, own: ToolsAndResources, name_of: NameOf) -> None:
        self._own = own
        self._name_of = name_of
        self._made: dict[Principal, Toolbox] = {}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._of(OWNER).listed()

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply:
        return await self._of(client.principal).call(name, args, client.session)

    def _of(self, principal: Principal) -> Toolbox:
        if principal not in self._made:
            if len(self._made) >= MAX_TOOLBOXES:
                self._made.clear()
            self._made[principal] = self._own.toolbox(principal, self._name_of)
        return self._made[principal]


class SeenResources:
    """Lists the same URIs for all principals; each read returns only what its reader may see."""

    def __init__(self, own: ToolsAndResources) -> None:
        self._own = own

    def listed(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).listed()

    def templates(self) -> Sequence[Mapping[str, Any]]:
        return self._own.resources(OWNER).templates()

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        return await self._own.resources(client.principal).read(uri)


_TOOL_NAME = re.compile(r"[\w.:/-]{1,128}")


def toolbox_of(
    app: MemoryApp,
    cwd: str | None,
    principal: Principal,
    served: Served,
    record: Record,
    *,
    few: bool,
) -> Toolbox:
    """The tools for a principal in the folder `cwd`. Only principals who see the default namespace
    get the tools for short notes, and only the owner gets the statistics. `few`: see
    `ToolsOptions`. `record` writes the audit log."""
    config = app.config
    project, status, texts = project_of(cwd), config.shows_status(), CitedTexts(app, cwd)
    originals, follow_up = app.originals.of(principal.name), app.follow_up
    own = (app.notes, project, principal)
    alike = partial(note_tools.alike, app.memory, project, principal)
    read_only = config.store.read_only
    noting = (
        note_tools.add_tool(*own, status=status, alike=alike, read_only=read_only),
        note_tools.search_tool(*own, status=status),
        note_tools.delete_tool(*own, status=status, read_only=read_only),
    )
    is_owner = principal == OWNER
    tools = [
        *(
            follow_up.traced(tool(originals, follow_up.on_follow_up))
            for tool in (read_more_tool, select_tool, search_original_tool)
        ),
        compression_feedback_tool(partial(app.budgets.report, rater=principal.name), served),
        feedback_tool(partial(app.surfacer.ratings.rate_all, principal=principal)),
        context_tool(
            app.surfacer.surface,
            cwd,
            enabled=config.memory_context.enabled,
            principal=principal,
        ),
        search_tool(
            app.memory,
            project,
            principal,
            texts.search_sessions if is_owner else None,
            app.learning.viewed,
        ),
        get_tool(
            app.memory,
            texts.lines if is_owner else app.documents.lines,
            project,
            app.learning.opened,
            principal,
            app.learning.viewed,
            app.documents.refresh,
        ),
        *(noting if principal.sees(DEFAULT_NAMESPACE) else ()),
        *([stats_tool(partial(report_of, app))] if is_owner else []),
    ]
    hidden = config.tools.hidden([tool.name for tool in tools], few=few)
    return Toolbox(tools, principal, record, hidden)


def known_tool(
    servers: Sequence[ServerOptions], server: str, tool: str, tools: Sequence[str] = ()
) -> str:
    """The full name of a tool on one of these servers, or of an agent's own tool (`claude`,
    `Bash`). `tools` are the names of the server's tools, if known.

    Raises:
        UsageError: no such server, or no such tool.
    """
    names = [known.name for known in servers]
    if server not in names and server not in HOSTS:
        near = difflib.get_close_matches(server, names, n=2) or names[:5]
        hint = f"the servers are {', '.join(near)}" if near else "no server is configured"
        raise UsageError(f"no server is called {server!r:.80}", hint=hint)
    if not _TOOL_NAME.fullmatch(tool) or (tools and tool not in tools):
        near = difflib.get_close_matches(tool, tools, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "pass server and tool separately"
        raise UsageError(f"{server} has no tool {tool!r:.80}", hint=hint)
    return f"{server}__{tool}"


def tools_of(config: Config, embedder: Embedder | None) -> Tools:
    """The embedder and the model that compression may use, as configured."""
    return Tools(
        embedder=embedder,
        chat=OpenAIChat(config.llm) if config.llm.base_url else None,
        may_send=lambda text: not has_secret(text),
    )


def connecting(config: Config) -> Connecting:
    """The function that connects to servers with this home's logins."""
    logins = Logins(config.home.logins_file)
    return partial(connect, environment=config.environment, logins=logins)


class App(MemoryApp):
    """All parts of upwell for one home, wired together. Close it with `aclose()`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        config, clock = self.config, settings.clock
        self.audit = Audit(open_audit_log(config, self._files), clock)
        self.guards = Guards(
            self.memory.reader,
            self._ttl_store,
            is_paused=self.pause.holds,
            refused=self.surfacer.refused,
            clock=clock,
        )
        self._tools = tools_of(config, self._embedder)
        self.fitter = Fitter(
            self.originals,
            self._compress_for,
            tools=self._tools,
            result_tokens=config.result_tokens(),
            ratios=self.budgets.ratios,
            shortened=self.follow_up.delivered,
        )
        self.worker_pool = WorkerPool(
            {**config.environment, "UPWELL_HOME": str(config.home.root)},
            self._private,
            config.compress.original_ttl_seconds,
            options=self._compress_for,
            ratios=self.budgets.ratios,
            shortened=self.follow_up.delivered,
            brief=self.fitter.brief,
        )
        self._cache: Cache | None = None
        if config.cache.tools:
            secret = own_secret(config.home.secret_file)
            self._cache = Cache(self._ttl_store, secret, config.cache, has_secret)

    def _compress_for(self, server: str, tool: str) -> CompressOptions:
        # `config` is read on each call, because a hot reload replaces it.
        return self.config.compress_for(server, tool)

    def may_shorten(self, server: str, tool: str) -> bool:
        """True if the results of a tool may be shortened."""
        return self._compress_for(server, tool).strategy != "none"

    async def compress(
        self,
        text: str,
        *,
        strategy: str = "",
        max_tokens: int | None = None,
        max_chars: int | None = None,
        query: str = "",
        name: str = "",
        read_later: bool = False,
    ) -> Compressed:
        """Shorten a text as the gateway would, and store its original. `max_tokens` and `max_chars`
        are limits as in `upwell.compress.compress()`. With `read_later`, the result has a key only
        if a later process can read the original."""
        options = self.config.compress
        options = dataclasses.replace(options, strategy=strategy) if strategy else options
        budget = self.fitter.budget_of(options)
        if max_tokens is not None or max_chars is not None:
            budget = Budget(hard_tokens=max_tokens, hard_chars=max_chars)
        return await self.fitter.compress(
            text, budget, options, query=query, name=name, read_later=read_later
        )

    def toolbox(
        self,
        principal: Principal = OWNER,
        name_of: NameOf | None = None,
        *,
        cwd: str | None = None,
        few: bool = False,
    ) -> Toolbox:
        """upwell's own MCP tools for a principal. `name_of()` looks up a server's tools. `cwd` is
        the caller's folder, if it is not this app's. `few`: see `ToolsOptions`."""

        def served(server: str, tool: str) -> str:
            own_name, names = name_of(server, tool) if name_of else (tool, ())
            return known_tool(self.config.servers, server, own_name, names)

        return toolbox_of(self, cwd or self._cwd, principal, served, self.audit.record, few=few)

    @property
    def postgres(self) -> "Postgres | None":
        """The connections to the team's database."""
        return self._files.postgres

    def resources(self, principal: Principal = OWNER) -> Resources:
        """upwell's own MCP resources, limited to what a principal may see."""
        project, viewed = project_of(self._cwd), self.learning.viewed
        return Resources(self.memory, self.topics, project, principal, viewed=viewed)

    def pipeline(self, parent: int | None = None, cwd: str | None = None) -> Pipeline:
        """The path of calls through this app. The calls of the agent with the process id `parent`
        join the session that its hooks report. `cwd` is its folder, if it is not this app's."""
        cwd = cwd or self._cwd
        joined = JoinedSessions(HostSessions(self._ttl_store), parent, cwd) if parent else None
        surfacing = CallSurfacing(
            self.surfacer,
            lambda server, tool: self._surface_of(f"{server}__{tool}", None),
            cwd=cwd,
            sessions=joined,
            guards=self.guards,
            progressive=lambda *name: self._compress_for(*name).strategy == "progressive",
        )
        return Pipeline(
            Fitting(self.fitter, self.worker_pool),
            surfacing,
            # upwell is paused, or the agent works in a project that the user excluded.
            is_untouched=lambda session: (
                self.pause.holds(session) or self.config.projects.excludes(cwd)
            ),
            cache=self._cache,
        )

    async def session_of(self, host: str, parent: int, cwd: str) -> str:
        """The session that hooks recorded for this agent process and folder, or ""."""
        return await JoinedSessions(HostSessions(self._ttl_store), parent, cwd).session(host, "")

    def gateway(self, parent: int | None = None) -> Gateway:
        """The MCP gateway for this app. `parent` is the process id of the agent that started it, if
        it serves one agent."""
        config = self.config

        # Not `gateway.name_of`, because the constructor below lists upwell's tools before `gateway`
        # exists.
        def name_of(server: str, tool: str) -> tuple[str, Sequence[str]]:
            return gateway.name_of(server, tool)

        gateway = Gateway(
            config.servers,
            config.gateway,
            connecting(config),
            OwnServer(
                tools=Toolboxes(self, name_of),
                resources=SeenResources(self),
            ),
            self.pipeline(parent),
            ToolListing(may_compress=self.may_shorten, added=self.learning.listed),
            GatewayRecords(
                save_offer=partial(save_offer, config.home),
                tool_lists=ToolLists(config.home.lists_file),
            ),
        )
        return gateway

    def hooks(self, ended: TurnEnd | None = None) -> HookDoor:
        """The receiver of agents' hook events. `ended()` hears of each end of a turn or session."""
        config, learns = self.config, self.config.hook.capture
        capture = self.session_capture() if learns else None
        past = self.past_sessions() if learns else None
        shortening = Shortening(
            config,
            self.originals,
            self._tools,
            self.pause.holds,
            self.follow_up.shortened_by_hook,
            self.surfacer.last_request,
        )
        asking = AgentAsking(
            partial(tool_name, config),
            partial(has_noted, self.memory, self.notes),
            self.pause.holds,
            commands_in,
        )
        return HookDoor(
            self.surfacer,
            HostSessions(self._ttl_store),
            turn_end=partial(end_turn, self.surfacer, self.learning, capture, past, ended),
            answered_elsewhere=partial(answered_elsewhere, config.home.hooks_file),
            opt_ins=HookParts(
                shorten=shortening,
                shortened=config.hook.compress,
                limit_seconds=config.surface.race_ms / 1000,
                ask=asking if config.capture.ask_agent else None,
                guards=self.guards,
                is_excluded=config.projects.excludes,
                read_command=read_command(config.home),
            ),
        )

    def checks(self) -> dict[str, Awaitable[Ping | None]]:
        """A check for each part except the documents. The caller awaits the checks; the result is
        None for a part that is not in use.
        """
        checks: dict[str, Awaitable[Ping | None]] = {
            "memory": self.memory.ping(),
            "team": copy_ping(self.config, self.memory.store),
            "notes": asyncio.to_thread(ping_of, self.notes),
        }
        if self.qmd:
            checks["qmd"] = FallBack(self.qmd, self.documents).ping()
        if self._ltm:
            checks["ltm"] = self._ltm.ping()
        checks["meaning"] = self.embeddings.ping()
        if self.config.surface.judge:
            checks["judge"] = asyncio.to_thread(judge_ping, self.config.llm)
        checks["ttl_store"] = self._ttl_store.ping()
        checks["pause"] = asyncio.to_thread(self._pause_ping)
        return checks

    def _pause_ping(self) -> Ping:
        ping = self.pause.ping()
        if pattern := self.config.projects.pattern_of(self._cwd):
            off = f"off in this project: projects.exclude has {pattern!r}"
            ping = replace(ping, detail=f"{ping.detail}; {off}, `upwell on --project` resumes")
        return ping

    def places_of_recall(self) -> list[tuple[str, Recall]]:
        """Every place that a search covers, with the name of its check."""
        places: list[tuple[str, Recall | None]] = [
            ("memory", StoreRecall(self.memory.store)),
            ("documents", self.documents),
            ("qmd", self.qmd),
            ("ltm", self._ltm),
        ]
        return [(name, place) for name, place in places if place is not None]

    @property
    def chores(self) -> Sequence[Chore]:
        return [*super().chores, self.audit.expire]

    async def follow_team(self) -> None:
        """Keep the snapshot of the team's memories up to date, until cancelled. Returns at once if
        this home has none."""
        await keep_copy(self.config, self.memory.store)

    async def warm(self) -> None:
        """Prepare the workers and indexes, so that the first large result or search does not wait
        for them.
        """
        if self._ltm:
            self._ltm.warm()
        await self.worker_pool.warm()
        try:
            await self.documents.refresh(project_of(self._cwd))
            await self.topics.refresh()
            await self.embeddings.catch_up()
        except StoreError as error:
            LOG.warning("the memory indexes cannot be prepared: %s", error)

    async def aclose(self) -> None:
        """Write pending data and close the files."""
        await self.worker_pool.aclose()
        if self._cache:
            await self._cache.aclose()
        await self.audit.aclose()
        await super().aclose()


async def build(settings: Settings | None = None) -> App:
    """Build the app of a home. Invalid settings are ignored (`App.mistakes`).

    Raises:
        ConfigError: the file, a key of `store.*` or `memory.*`, or the driver is at fault.
        StoreError: a file other than `ledger.db` cannot be used. If `ledger.db` cannot be used,
            a store in memory takes over.
    """
    app = App(settings or Settings())
    await app.open()
    return app
