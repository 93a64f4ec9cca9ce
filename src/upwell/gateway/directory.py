"""What servers offer besides tools: prompts, resources and templates, and whose each one is.

Prompts are named like tools (`gateway/names.py`). Resources keep their addresses: where two
servers have the same one, it is the first server's, in the order of the configuration, and the
other is not listed. An address that nobody lists belongs to the server whose template it fits,
else to the first one that can read it.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from upwell.gateway.client import Client, text_of
from upwell.gateway.names import SEPARATOR, Names, may_be_alias, server_of
from upwell.gateway.upstream import State, Upstream
from upwell.ground.errors import UpstreamError
from upwell.ground.trace import LOG
from upwell.ground.types import Reply
from upwell.wire.rawjson import NotJson, RawArray, RawObject, check, dumps

OWN_SCHEME = "upwell://"
_VARIABLE = re.compile(r"\{[^{}]*\}")


class LocalResources(Protocol):
    """Our own resources, as the gateway sees them: one more server."""

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """MCP resource objects."""
        ...

    def templates(self) -> Sequence[Mapping[str, Any]]:
        """MCP resource templates."""
        ...

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        """The contents of one, as a client may see it.

        Raises:
            UsageError: there is none under this address.
        """
        ...


class Directory:
    """Lists what the upstreams have, ours last, and finds whose something is. `upstreams` gives
    those of the moment; servers that are starting get `wait_seconds`."""

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalResources,
        wait_seconds: float,
    ) -> None:
        self.upstreams = upstreams
        self._own = own
        self._shown: set[str] = set()
        self.wait_seconds = wait_seconds
        self._owners: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, str]] = {}
        self._names = Names()

    async def settled(self) -> None:
        """Wait for servers that are starting, a moment."""
        starting = [
            asyncio.create_task(upstream.settled())
            for upstream in self.upstreams()
            if upstream.state is State.STARTING
        ]
        if starting:
            _done, late = await asyncio.wait(starting, timeout=self.wait_seconds)
            for task in late:
                task.cancel()

    def shown(self, kind: str) -> bool:
        """Did anybody ask for this list (`prompts`, `resources`)?"""
        return kind in self._shown

    def tell(self, method: str, params: bytes) -> None:
        """Pass a client's notification on to every server, without waiting for any. One that is no
        JSON is dropped."""
        try:
            check(params)
        except NotJson as error:
            LOG.warning("%s of a client is not JSON: %s", method, error)
            return
        for upstream in self.upstreams():
            upstream.tell(method, params)

    async def prompts(self, client: Client) -> bytes:
        """The raw array of every prompt."""
        items: dict[str, bytes] = {}
        listed = await self._all("prompts", "prompts/list", "prompts", client)
        self._names.look(self.upstreams())
        for upstream, prompt in listed:
            bare = text_of(prompt, "name")
            name = self._names.claim(upstream, bare)
            if name and name not in items:
                items[name] = prompt.replaced("name", dumps(name)).encode()
                self._prompts[name] = (upstream.name, bare)
        return RawArray(tuple(items.values())).encode()

    async def resources(self, client: Client) -> bytes:
        """The raw array of every resource."""
        listed = await self._all("resources", "resources/list", "resources", client)
        return self._unique(listed, "uri", self._owners, self._own.listed())

    async def templates(self, client: Client) -> bytes:
        """The raw array of every resource template."""
        method = "resources/templates/list"
        listed = await self._all("resources", method, "resourceTemplates", client)
        return self._unique(listed, "uriTemplate", self._templates, self._own.templates())

    async def prompt(self, name: str, client: Client) -> tuple[Upstream, str] | None:
        """Whose prompt this is, and what it calls it."""
        await self.settled()
        if name not in self._prompts and (may_be_alias(name) or not self._prefixed(name)):
            await self.prompts(client)
        if found := self._prompts.get(name):
            owners = (one for one in self.upstreams() if one.name == found[0])
            return next(((one, found[1]) for one in owners), None)
        if upstream := self._prefixed(name):
            return upstream, name.partition(SEPARATOR)[2]
        return None

    def _prefixed(self, name: str) -> Upstream | None:
        """The server whose prefix a name has: all such names are its own, listed or not."""
        server = server_of(name)
        return next((one for one in self.upstreams() if server and one.prefix == server), None)

    async def owners(self, uri: str) -> list[Upstream]:
        """Who may have a resource, the likeliest first; one alone where it is known."""
        await self.settled()
        holders = [one for one in self.upstreams() if one.about.offers("resources")]
        known = self._owners.get(uri) or self._templates.get(uri)
        if sure := [one for one in holders if one.name == known]:
            return sure
        fitting = {name for template, name in self._templates.items() if _fits(template, uri)}
        return sorted(holders, key=lambda one: one.name not in fitting)

    async def asked(self, uri: str, method: str, params: RawObject, client: Client) -> Reply | None:
        """Ask about a resource those who may have it, until one knows it. None: nobody offers
        resources.

        Raises:
            UpstreamError: none of them can be asked.
        """
        first: Reply | None = None
        failure: UpstreamError | None = None
        for upstream in await self.owners(uri):
            try:
                reply = await upstream.call(method, params, client, again=True)
            except UpstreamError as error:
                failure = failure or error
                continue
            if not reply.error:
                return reply
            first = first or reply
        if first is None and failure is not None:
            raise failure
        return first

    def _unique(
        self,
        listed: Sequence[tuple[Upstream, RawObject]],
        key: str,
        owners: dict[str, str],
        own: Sequence[Mapping[str, Any]],
    ) -> bytes:
        """One entry for each address, the first server's; notes whose they are."""
        items: list[bytes] = []
        found: dict[str, str] = {}
        for upstream, item in listed:
            address = text_of(item, key)
            if address in found or address.startswith(OWN_SCHEME):
                LOG.info("upstream %s: %r is another server's", upstream.name, address)
                continue
            found[address] = upstream.name
            items.append(item.encode())
        owners.clear()
        owners.update(found)
        return RawArray((*items, *map(dumps, own))).encode()

    async def _all(
        self, capability: str, method: str, member: str, client: Client
    ) -> list[tuple[Upstream, RawObject]]:
        """Every entry of every server that says it has any; one that fails hides no other."""
        await self.settled()
        self._shown.add(capability)
        asked = [one for one in self.upstreams() if one.about.offers(capability)]
        lists = await asyncio.gather(
            *(one.every(method, member, client) for one in asked), return_exceptions=True
        )
        found: list[tuple[Upstream, RawObject]] = []
        for upstream, listed in zip(asked, lists, strict=True):
            if isinstance(listed, UpstreamError):
                LOG.warning("%s", listed)
            elif isinstance(listed, BaseException):
                raise listed
            else:
                found.extend((upstream, item) for item in listed)
        return found


def _fits(template: str, uri: str) -> bool:
    """Could `uri` have come out of this template? Its literal parts stand in it, in order."""
    first, *rest = _VARIABLE.split(template)
    if not rest:
        return template == uri
    if not uri.startswith(first):
        return False
    at = len(first)
    for part in rest[:-1]:
        found = uri.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(uri) - len(rest[-1]) >= at and uri.endswith(rest[-1])
