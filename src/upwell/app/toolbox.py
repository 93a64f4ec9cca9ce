"""Wires upwell's own MCP tools.

upwell's own tools and resources, limited to what a principal (a user of the gateway) may use.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from upwell.app.memory import CitedTexts, MemoryApp
from upwell.app.reporting import report_of
from upwell.gateway.clients import Client
from upwell.gateway.options import ServerOptions
from upwell.ground.errors import UsageError
from upwell.ground.project import project_of
from upwell.ground.types.memory import DEFAULT_NAMESPACE
from upwell.ground.types.rpc import OWNER, Principal, Reply
from upwell.hosts import HOSTS
from upwell.tools import notes as note_tools
from upwell.tools.base import Record, Toolbox
from upwell.tools.feedback import Served, compression_feedback_tool, feedback_tool, stats_tool
from upwell.tools.followup import read_more_tool, search_original_tool, select_tool
from upwell.tools.recall import context_tool, get_tool, search_tool
from upwell.tools.resources import Resources

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
