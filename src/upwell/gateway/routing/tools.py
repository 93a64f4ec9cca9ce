"""The tool list that clients see, and the mapping from a public name to its server. A tool is
listed as `{server}__{tool}`, or under its own name if its server has no prefix."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from upwell.gateway.clients import Client, RequestContext, text_of
from upwell.gateway.shapes import compiles
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.names import OWN_SERVER
from upwell.ground.text.tokens import count
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.mirrors import BadMirror, Mirror, declared_by
from upwell.wire.rawjson import NotJson, RawArray, RawObject, dumps

SEPARATOR = "__"
TOOL_NAME_CHARS = 64
MAX_NAME_CHARS = TOOL_NAME_CHARS - len(f"mcp__{OWN_SERVER}__")
"""Agents accept tool names of up to 64 characters, and some prepend `mcp__upwell__`."""

TOOLS_CACHED = 10_000
"""The maximum number of entries in each cache of tools."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8
_ALIAS = re.compile(rf"_[0-9a-f]{{{_DIGEST_CHARS}}}$")


def front_name(server: str, tool: str) -> str:
    """Return `{server}__{tool}`, or the tool's own name if `server` is "". If agents would reject
    this name, return an alias. The alias depends only on the name, so it never changes.
    """
    name = f"{server}{SEPARATOR}{tool}" if server else tool
    if len(name) <= MAX_NAME_CHARS and not _UNFIT.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{_UNFIT.sub('_', name)[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def server_of(name: str) -> str:
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator else ""


def may_be_alias(name: str) -> bool:
    """An alias from `front_name()` cannot be split into server and tool."""
    return _ALIAS.search(name) is not None


class Names:
    """The owner of each public name.

    A name with a server's prefix belongs to that server, even while the server is down. The prefix
    `upwell__` is ours. A name without a prefix belongs to the first server that has it, in the
    order of the configuration, and stays with that server for as long as the server is configured.
    """

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._prefixes: frozenset[str] = frozenset({OWN_SERVER})
        self._undecided_servers: set[str] = set()

    def look(self, upstreams: Sequence[Upstream]) -> None:
        """Read the current servers, before names are claimed."""
        prefixes = (upstream.prefix for upstream in upstreams if upstream.prefix)
        self._prefixes = frozenset({OWN_SERVER, *prefixes})
        bare = [upstream for upstream in upstreams if not upstream.prefix]
        present = {upstream.name for upstream in bare}
        self._owners = {name: owner for name, owner in self._owners.items() if owner in present}
        # A server that starts for the first time takes precedence over the servers that follow it.
        unknown = [
            index
            for index, upstream in enumerate(bare)
            if upstream.state is ServerState.STARTING and not upstream.about.version
        ]
        later = bare[min(unknown) + 1 :] if unknown else []
        self._undecided_servers = {upstream.name for upstream in later}

    def claim(self, upstream: Upstream, own_name: str) -> str:
        """Return the public name of a server's tool or prompt. Returns "" if the name belongs to
        another server, or if a server that has not replied yet may have it."""
        name = front_name(upstream.prefix, own_name)
        if not own_name or upstream.prefix:
            return name if own_name else ""
        if server_of(name) in self._prefixes or server_of(name).lower() == OWN_SERVER:
            return ""
        if name not in self._owners and upstream.name in self._undecided_servers:
            return ""
        return name if self._owners.setdefault(name, upstream.name) == upstream.name else ""


MAX_TOOLS_ON_LOOP = 100
"""Longer tool lists are rebuilt in a thread."""
CONTEXT_QUERY = "_context_query"


class LocalTools(Protocol):
    """Our own tools. The gateway treats them as if another server offered them."""

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """MCP tool objects, with names without a prefix."""
        ...

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply: ...


class Target(Struct, frozen=True, kw_only=True):
    """The tool that a public name refers to. `upstream` is None for our own tools. `declares_query`
    is true if the tool itself has a `_context_query` argument. `declared` is a digest of the tool's
    definition. `mirrors` lists the arguments whose values must also be sent in HTTP headers."""

    tool: str
    upstream: Upstream | None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    declares_query: bool = False
    declared: str = ""
    mirrors: tuple[Mirror, ...] = ()


class ToolCatalog:
    """The tool list, and the target of each public name.

    `may_compress(server, tool)` returns whether a tool's results may be shortened. If they may, the
    tool is listed without its `outputSchema`, because a shortened result may not match the schema.
    `added(host, tokens)` is called when a session receives its first list, with the tokens of our
    own tools in it.
    """

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalTools,
        may_compress: Callable[[str, str], bool],
        added: Callable[[str, int], None],
    ) -> None:
        self._upstreams = upstreams
        self._own = own
        self._added = added
        self._own_tools: tuple[bytes, ...] = ()
        self._may_compress = may_compress
        self._names = Names()
        self._targets: dict[str, Target] = {}
        self._listing: bytes = b"[]"
        self._listed_state: object = None
        self._refreshing = asyncio.Lock()
        self.rebuild()

    @property
    def listing(self) -> bytes:
        """The raw JSON array of tools, in the order of the configuration, with our own last."""
        return self._listing

    def listing_for(self, client: RequestContext) -> bytes:
        """The list for a client, whose session remembers it."""
        session = client.owner
        if not session.listed:
            listed = (raw.decode("utf-8", "replace") for raw in self._own_tools)
            self._added(client.host, sum(map(count, listed)))
        session.listed = self._listing
        return self._listing

    def resolve(self, name: str) -> Target | None:
        return self._targets.get(name)

    async def refresh(self, *, force: bool = False) -> None:
        """Rebuild the list if any upstream has changed, or if `force` is set. A long list is
        rebuilt in a thread, so that it does not block the event loop."""
        async with self._refreshing:
            upstreams = self._upstreams()
            state = [(entry, entry.tools, entry.state, entry.about.version) for entry in upstreams]
            if state == self._listed_state and not force:
                return
            if sum(len(upstream.tools) for upstream in upstreams) > MAX_TOOLS_ON_LOOP:
                await asyncio.to_thread(self.rebuild)
            else:
                self.rebuild()
            self._listed_state = state

    def rebuild(self) -> None:
        listed: dict[str, RawObject] = {}
        targets: dict[str, Target] = {}
        upstreams = self._upstreams()
        self._names.look(upstreams)
        for upstream in upstreams:
            for tool in upstream.tools:
                try:
                    self._add(upstream, tool, listed, targets)
                except NotJson as error:
                    LOG.warning("upstream %s: a tool cannot be listed: %s", upstream.name, error)
        own_tools: dict[str, bytes] = {}
        for own in self._own.listed():
            name = front_name(OWN_SERVER, own["name"])
            own_tools[name] = dumps({**own, "name": name})
            targets[name] = Target(tool=own["name"], upstream=None)
        self._own_tools = tuple(own_tools.values())
        upstream_tools = (tool.encode() for tool in listed.values())
        self._listing = RawArray((*upstream_tools, *self._own_tools)).encode()
        self._targets = targets

    def _add(
        self,
        upstream: Upstream,
        tool: RawObject,
        listed: dict[str, RawObject],
        targets: dict[str, Target],
    ) -> None:
        declared = _declared(tool)
        name = self._names.claim(upstream, declared.tool)
        if not name or name in targets:
            why = "its name is missing, taken or still undecided"
            LOG.warning("upstream %s: tool %r is left out: %s", upstream.name, declared.tool, why)
            return
        listed[name] = _listed(tool, name, self._may_compress(upstream.name, declared.tool))
        targets[name] = replace(declared, upstream=upstream)


@lru_cache(maxsize=TOOLS_CACHED)
def _declared(tool: RawObject) -> Target:
    """The result is cached, because the list is rebuilt often. Raises NotJson if the tool cannot be
    listed."""
    properties = _mapping(tool, "inputSchema").get("properties")
    mirrors: tuple[Mirror, ...] = ()
    with suppress(BadMirror):
        mirrors = declared_by(tool)
    return Target(
        tool=text_of(tool, "name"),
        upstream=None,
        annotations=_mapping(tool, "annotations"),
        declares_query=isinstance(properties, dict) and CONTEXT_QUERY in properties,
        declared=hashlib.sha256(tool.encode()).hexdigest(),
        mirrors=mirrors,
    )


@lru_cache(maxsize=TOOLS_CACHED)
def _listed(tool: RawObject, name: str, may_compress: bool) -> RawObject:
    listed = tool.replaced("name", dumps(name))
    is_usable = not may_compress and compiles(_mapping(tool, "outputSchema"))
    return listed if is_usable else listed.without("outputSchema")


def _mapping(tool: RawObject, name: str) -> Mapping[str, Any]:
    try:
        value = tool.value(name)
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}
