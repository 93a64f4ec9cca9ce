"""The tools in front: every upstream's, each under `{server}__{tool}`, and our own."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from upwell.gateway.client import Client, text_of
from upwell.gateway.definitions import TOOLS_KEPT, Definitions
from upwell.gateway.names import Names, front_name
from upwell.gateway.upstream import Upstream
from upwell.ground.names import OWN_SERVER
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.mirrors import BadMirror, Mirror, declared_by
from upwell.wire.rawjson import NotJson, RawObject, check, depth, dumps

MAX_DEPTH = 100
MOST_AT_ONCE = 100
"""More tools than that are read on a thread."""
CONTEXT_QUERY = "_context_query"


class LocalTools(Protocol):
    """Our own tools, as the gateway sees them: one more server."""

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """MCP tool objects under their bare names."""
        ...

    async def call(self, name: str, args: Mapping[str, Any], client: Client) -> Reply:
        """Call one for a client, as far as what it may see goes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a name in front leads to. `upstream` None: one of our own tools. `mirrors` are what
    HTTP headers have to say of its arguments."""

    tool: str
    upstream: Upstream | None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    declares_query: bool = False
    declared: str = ""
    mirrors: tuple[Mirror, ...] = ()


class Catalog:
    """The list in front and the way back from each name.

    `may_compress(server, tool)` decides whether a tool is listed without its `outputSchema`
    (DESIGN 4.13): what may be shortened must not promise a structure. `definitions` makes a list
    that is too long short.
    """

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalTools,
        may_compress: Callable[[str, str], bool],
        definitions: Definitions | None = None,
    ) -> None:
        self._upstreams = upstreams
        self._own = own
        self._may_compress = may_compress
        self._definitions = definitions or Definitions()
        self._names = Names()
        self._targets: dict[str, Target] = {}
        self._listing: bytes = b"[]"
        self._seen: object = None
        self._one_at_a_time = asyncio.Lock()
        self.rebuild()

    @property
    def listing(self) -> bytes:
        """The raw JSON array of tools, in stable order: servers as configured, ours last."""
        return self._listing

    def resolve(self, name: str) -> Target | None:
        return self._targets.get(name)

    def hidden(self, name: str) -> bytes:
        """The input schema of a tool that is listed without it, empty for every other."""
        return self._definitions.hidden(name)

    async def refresh(self, *, anew: bool = False) -> None:
        """Read every upstream's tools anew where any of them changed, or `anew` in any case. Many
        are read beside the loop, so that no call waits for that."""
        async with self._one_at_a_time:
            upstreams = self._upstreams()
            seen = [(one, one.tools, one.state, one.about.version) for one in upstreams]
            if seen == self._seen and not anew:
                return
            if sum(len(one.tools) for one in upstreams) > MOST_AT_ONCE:
                await asyncio.to_thread(self.rebuild)
            else:
                self.rebuild()
            self._seen = seen

    def rebuild(self) -> None:
        """Read every upstream's tools anew."""
        theirs: dict[str, RawObject] = {}
        targets: dict[str, Target] = {}
        upstreams = self._upstreams()
        self._names.look(upstreams)
        for upstream in upstreams:
            for tool in upstream.tools:
                try:
                    self._add(upstream, tool, theirs, targets)
                except NotJson as error:
                    LOG.warning("upstream %s: a tool cannot be listed: %s", upstream.name, error)
        ours: dict[str, bytes] = {}
        for own in self._own.listed():
            name = front_name(OWN_SERVER, own["name"])
            ours[name] = dumps({**own, "name": name})
            targets[name] = Target(tool=own["name"], upstream=None)
        self._listing = self._definitions.listing(theirs, ours)
        self._targets = targets

    def _add(
        self,
        upstream: Upstream,
        tool: RawObject,
        theirs: dict[str, RawObject],
        targets: dict[str, Target],
    ) -> None:
        declared = _declared(tool)
        bare = declared.name
        name = self._names.claim(upstream, bare)
        if not name or name in targets:
            LOG.warning("upstream %s: tool %r has no name of its own", upstream.name, bare)
            return
        theirs[name] = _listed(tool, name, self._may_compress(upstream.name, bare))
        targets[name] = Target(
            tool=bare,
            upstream=upstream,
            annotations=declared.annotations,
            declares_query=declared.asks_for_query,
            declared=declared.digest,
            mirrors=declared.mirrors,
        )


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a server declares of a tool, as far as it matters here."""

    name: str
    annotations: Mapping[str, Any]
    asks_for_query: bool
    digest: str
    mirrors: tuple[Mirror, ...]


@lru_cache(maxsize=TOOLS_KEPT)
def _declared(tool: RawObject) -> _Declared:
    """A tool read once: the list is made anew whenever somebody asks for it.

    Raises:
        NotJson: it cannot be listed.
    """
    raw = tool.encode()
    check(raw)
    if depth(raw) > MAX_DEPTH:
        raise NotJson(f"nested more than {MAX_DEPTH} levels")
    return _Declared(
        text_of(tool, "name"),
        _mapping(tool, "annotations"),
        _declares(tool, CONTEXT_QUERY),
        hashlib.sha256(raw).hexdigest(),
        _mirrors(tool),
    )


@lru_cache(maxsize=TOOLS_KEPT)
def _listed(tool: RawObject, name: str, may_compress: bool) -> RawObject:
    listed = tool.replaced("name", dumps(name))
    return listed.without("outputSchema") if may_compress else listed


def _mirrors(tool: RawObject) -> tuple[Mirror, ...]:
    """What the tool declares; nothing where that is against the specification."""
    try:
        return declared_by(tool)
    except BadMirror:
        return ()


def _declares(tool: RawObject, argument: str) -> bool:
    properties = _mapping(tool, "inputSchema").get("properties")
    return isinstance(properties, dict) and argument in properties


def _mapping(tool: RawObject, name: str) -> Mapping[str, Any]:
    try:
        value = tool.value(name)
    except NotJson:
        return {}
    return value if isinstance(value, dict) else {}
