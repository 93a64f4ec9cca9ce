"""Handles requests about prompts, resources and completions; and, as `Subscriptions`, those for
updates and log messages.

Each prompt or resource belongs to one server, which handles the requests about it. Prompts are
named like tools (`gateway/routing/tools.py`). Resources keep their URIs. If several servers list a
URI, it belongs to the one configured first, and the other entries are dropped. A URI that is in no
list belongs to the server with the most specific template for it, so that a server with the
template `{+uri}` gets no requests about the resources of others. Without such a template, the
servers that list other resources of the same scheme are asked, or else all servers, until one can
read it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from upwell.gateway.clients import (
    LEVELS,
    NOBODY,
    Audience,
    Client,
    Method,
    RequestContext,
    RequestRefused,
    SubscriptionStream,
    text_of,
)
from upwell.gateway.eras import RESOURCE_NOT_FOUND, listen_filter, stamped
from upwell.gateway.routing.tools import SEPARATOR, Names, may_be_alias, server_of
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.background import BackgroundTasks
from upwell.ground.errors import UpstreamError, UsageError
from upwell.ground.trace import LOG
from upwell.ground.types.rpc import Reply
from upwell.wire.peer import INVALID_PARAMS, METHOD_NOT_FOUND
from upwell.wire.rawjson import NotJson, RawArray, RawObject, check, dumps, kind_of

OWN_SCHEME = "upwell"
NO_COMPLETIONS = b'{"completion":{"values":[],"total":0,"hasMore":false}}'
_VARIABLE = re.compile(r"\{[^{}]*\}")

WAIT_SECONDS = 5.0
LATE_SECONDS = 60.0
"""How long a list that arrived late is kept for the next request."""
_Entries = tuple[RawObject, ...] | None
Relay = Callable[[Upstream, RequestContext, Callable[[], Awaitable[Reply]]], Awaitable[Reply]]
"""The type of `Router.relay()`."""


class LocalResources(Protocol):
    """Our own resources. The gateway treats them as if another server offered them."""

    def listed(self) -> Sequence[Mapping[str, Any]]: ...

    def templates(self) -> Sequence[Mapping[str, Any]]: ...

    async def read(self, uri: str, client: Client) -> Sequence[Mapping[str, Any]]:
        """Return the parts of a resource that the client may see. Raises UsageError if there is no
        such resource."""
        ...


class UpstreamResources:
    """Lists the upstreams' prompts and resources, followed by our own resources, and finds the
    owner of each. Requests wait up to `wait_seconds` for upstreams that are starting, and for each
    upstream's list. `on_late` is called with a kind ("prompts" or "resources") when a list of it
    arrives later.
    """

    def __init__(
        self,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalResources,
        on_late: Callable[[Sequence[str]], Coroutine[Any, Any, None]],
        *,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.upstreams = upstreams
        self._wait_seconds = wait_seconds
        self._own = own
        self._on_late = on_late
        self._reads = BackgroundTasks("reading the lists of upstreams")
        self._late: dict[tuple[Upstream, str], asyncio.Task[_Entries]] = {}
        self._listed_from: object = None
        self._requested_kinds: set[str] = set()
        self._owners: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, str]] = {}
        self._names = Names()

    async def settled(self, most_seconds: float | None = None) -> None:
        """Wait at most `most_seconds` (by default, `wait_seconds`) for servers that are
        starting."""
        starting = [
            candidate for candidate in self.upstreams() if candidate.state is ServerState.STARTING
        ]
        if not starting:
            return
        try:
            seconds = self._wait_seconds if most_seconds is None else most_seconds
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for upstream in starting:
                    group.create_task(upstream.settled())
        except TimeoutError:
            LOG.debug("%d servers are still starting", len(starting))

    def was_listed(self, kind: str) -> bool:
        """Whether any client has requested this list."""
        return kind in self._requested_kinds

    def notify(self, method: str, params: bytes) -> None:
        try:
            check(params)
        except NotJson as error:
            LOG.warning("dropping a client's %s that is not JSON: %s", method, error)
            return
        for upstream in self.upstreams():
            upstream.notify(method, params)

    async def prompts(self, client: Client) -> bytes:
        self._requested_kinds.add("prompts")
        items: dict[str, bytes] = {}
        listed = await self._all("prompts", "prompts/list", "prompts", client)
        self._names.look(self.upstreams())
        for upstream, prompts in listed.items():
            for prompt in prompts:
                own_name = text_of(prompt, "name")
                name = self._names.claim(upstream, own_name)
                if name and name not in items:
                    items[name] = prompt.replaced("name", dumps(name)).encode()
                    self._prompts[name] = (upstream.name, own_name)
        return RawArray(tuple(items.values())).encode()

    async def resources(self, client: Client) -> bytes:
        self._requested_kinds.add("resources")
        items = await self._resources(client)
        return RawArray((*items, *map(dumps, self._own.listed()))).encode()

    async def templates(self, client: Client) -> bytes:
        self._requested_kinds.add("resources")
        items = await self._resource_templates(client)
        return RawArray((*items, *map(dumps, self._own.templates()))).encode()

    async def _resources(self, client: Client) -> list[bytes]:
        listed = await self._all("resources", "resources/list", "resources", client)
        return _unique(listed, "uri", self._owners)

    async def _resource_templates(self, client: Client) -> list[bytes]:
        method = "resources/templates/list"
        listed = await self._all("resources", method, "resourceTemplates", client)
        return _unique(listed, "uriTemplate", self._templates)

    async def prompt(self, name: str, client: Client) -> tuple[Upstream, str] | None:
        """Find the server of a prompt, and the server's own name for the prompt."""
        await self.settled()
        if name not in self._prompts and (may_be_alias(name) or not self._by_prefix(name)):
            await self.prompts(client)
        if listed := self._prompts.get(name):
            server, own_name = listed
            owners = (upstream for upstream in self.upstreams() if upstream.name == server)
            return next(((upstream, own_name) for upstream in owners), None)
        if upstream := self._by_prefix(name):
            return upstream, name.partition(SEPARATOR)[2]
        return None

    async def owners(self, uri: str) -> list[Upstream]:
        """Return the owner of a resource if it is known. Otherwise, return the servers whose lists
        fit the resource best. If no list fits, return all servers with resources."""
        await self.settled()
        candidates = [
            candidate for candidate in self.upstreams() if candidate.about.offers("resources")
        ]
        if len(candidates) > 1 and uri not in self._owners and uri not in self._templates:
            state = [(candidate, candidate.state) for candidate in candidates]
            if state != self._listed_from:
                await asyncio.gather(self._resources(NOBODY), self._resource_templates(NOBODY))
                self._listed_from = state
        claims = self._claims(uri)
        best = max((claims.get(candidate.name, 0) for candidate in candidates), default=0)
        return [
            candidate for candidate in candidates if not best or claims.get(candidate.name) == best
        ]

    def _claims(self, uri: str) -> dict[str, int]:
        """Return how well each server's lists fit a resource. Servers without a claim are missing.
        A claim is the number of characters that a template fixes, but at least 1 for the scheme."""
        if known := self._owners.get(uri) or self._templates.get(uri):
            return {known: 1}
        claims: dict[str, int] = {}
        scheme = _scheme(uri)
        for listed, server in (*self._owners.items(), *self._templates.items()):
            if _scheme(_VARIABLE.split(listed)[0]) == scheme:
                fixed = len(_VARIABLE.sub("", listed))
                claim = fixed if _matches(listed, uri) else 1
                claims[server] = max(claims.get(server, 1), claim)
        return claims

    async def aclose(self) -> None:
        await self._reads.aclose()

    async def ask_owners(
        self, uri: str, method: str, params: RawObject, client: Client
    ) -> Reply | None:
        """Ask the possible owners of a resource in turn, until one replies without an error. If
        none does, return the first error, or None if no server offers resources. Raises
        UpstreamError if none of them can be reached."""
        first_error: Reply | None = None
        failure: UpstreamError | None = None
        for upstream in await self.owners(uri):
            try:
                reply = await upstream.call(method, params, client, idempotent=True)
            except UpstreamError as error:
                failure = failure or error
                continue
            if not reply.error:
                return reply
            first_error = first_error or reply
        if first_error is None and failure is not None:
            raise failure
        return first_error

    def _by_prefix(self, name: str) -> Upstream | None:
        """That server owns the name even if it does not list it."""
        server = server_of(name)
        return next(
            (upstream for upstream in self.upstreams() if server and upstream.prefix == server),
            None,
        )

    async def _all(
        self, capability: str, method: str, member: str, client: Client
    ) -> dict[Upstream, tuple[RawObject, ...]]:
        """Return the entries of all servers with the capability. Servers that fail are left out,
        and so are those that have not listed their entries within `wait_seconds`."""
        await self.settled()
        reads: dict[Upstream, asyncio.Task[_Entries]] = {}
        for upstream in self.upstreams():
            if upstream.about.offers(capability):
                late = self._late.pop((upstream, method), None)
                work = late or self._reads.start(_read(upstream, method, member, client))
                reads[upstream] = work
        if reads:
            await asyncio.wait(reads.values(), timeout=self._wait_seconds)
        entries: dict[Upstream, tuple[RawObject, ...]] = {}
        for upstream, read in reads.items():
            if not read.done():
                self._expect(upstream, method, capability, read)
            elif (listed := read.result()) is not None:
                entries[upstream] = listed
        return entries

    def _expect(
        self, upstream: Upstream, method: str, kind: str, read: "asyncio.Task[_Entries]"
    ) -> None:
        """Keep a late list for the next request, and tell clients when it has arrived."""
        LOG.warning("upstream %s: %s is late; the list goes without it", upstream.name, method)
        self._late[upstream, method] = read

        def arrived(done: "asyncio.Task[_Entries]") -> None:
            if self._late.get((upstream, method)) is not done or done.cancelled():
                return
            if done.result() is None:
                del self._late[upstream, method]
                return
            loop = asyncio.get_running_loop()
            loop.call_later(LATE_SECONDS, self._late.pop, (upstream, method), None)
            self._reads.start(self._on_late([kind]))

        read.add_done_callback(arrived)


async def _read(upstream: Upstream, method: str, member: str, client: Client) -> _Entries:
    try:
        return await upstream.every(method, member, client)
    except UpstreamError as error:
        LOG.warning("%s", error)
        return None


def _unique(
    listed: Mapping[Upstream, Sequence[RawObject]], key: str, owners: dict[str, str]
) -> list[bytes]:
    """Return the `listed` entries. If several servers list a URI, only the first entry is kept.
    Updates `owners`, in which the entries of servers that did not answer stay.
    """
    items: list[bytes] = []
    servers: dict[str, str] = {}
    for upstream, entries in listed.items():
        for item in entries:
            uri = text_of(item, key)
            if uri in servers or is_own(uri):
                LOG.info("upstream %s: %r belongs to another server", upstream.name, uri)
                continue
            servers[uri] = upstream.name
            items.append(item.encode())
    answered = {upstream.name for upstream in listed}
    before = {uri: server for uri, server in owners.items() if server not in answered}
    owners.clear()
    owners.update({**servers, **before})
    return items


class ResourceMethods:
    """The functions for requests about prompts, resources and completions, keyed by method."""

    def __init__(self, relay: Relay, upstreams: UpstreamResources, own: LocalResources) -> None:
        self._relay = relay
        self._upstreams = upstreams
        self._own = own

    def methods(self) -> Mapping[str, Method]:
        return {
            "prompts/list": partial(_listed, "prompts", self._upstreams.prompts),
            "prompts/get": self._get_prompt,
            "resources/list": partial(_listed, "resources", self._upstreams.resources),
            "resources/templates/list": partial(
                _listed, "resourceTemplates", self._upstreams.templates
            ),
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    async def _get_prompt(self, params: RawObject, context: RequestContext) -> Reply:
        upstream, own_name = await self._prompt_owner(text_of(params, "name"), context)
        outgoing = params.replaced("name", dumps(own_name))
        return await self._relay(
            upstream,
            context,
            lambda: upstream.call("prompts/get", outgoing, context, idempotent=True),
        )

    async def _prompt_owner(self, name: str, context: RequestContext) -> tuple[Upstream, str]:
        owner = await self._upstreams.prompt(name, context)
        if owner is None:
            raise RequestRefused(INVALID_PARAMS, f"Unknown prompt: {name}")
        return owner

    async def _read(self, params: RawObject, context: RequestContext) -> RawObject | Reply:
        uri = uri_of(params, "resources/read")
        if is_own(uri):
            try:
                contents = await self._own.read(uri, context)
            except UsageError as error:
                raise _not_found(uri, str(error), context) from error
            return RawObject.parse(dumps({"contents": list(contents)}))
        owners = await self._upstreams.owners(uri)
        if len(owners) == 1:
            [upstream] = owners
            return await self._relay(
                upstream,
                context,
                lambda: upstream.call("resources/read", params, context, idempotent=True),
            )
        reply = await self._upstreams.ask_owners(uri, "resources/read", params, context)
        if reply is None:
            raise _not_found(uri, f"no server has a resource {uri!r}", context)
        return reply

    async def _complete(self, params: RawObject, context: RequestContext) -> Reply:
        raw = params.get("ref") or b""
        if kind_of(raw) != "object":
            raise RequestRefused(INVALID_PARAMS, "completion/complete needs a ref")
        ref = RawObject.parse(raw)
        if text_of(ref, "type") == "ref/prompt":
            upstream, own_name = await self._prompt_owner(text_of(ref, "name"), context)
            outgoing = params.replaced("ref", ref.replaced("name", dumps(own_name)).encode())
            return await upstream.call("completion/complete", outgoing, context, idempotent=True)
        uri = text_of(ref, "uri")
        reply = None
        if not is_own(uri):
            reply = await self._upstreams.ask_owners(uri, "completion/complete", params, context)
        return reply or Reply(result=NO_COMPLETIONS)


async def _listed(
    member: str,
    read: Callable[[Client], Awaitable[bytes]],
    _: RawObject,
    context: RequestContext,
) -> RawObject:
    return RawObject().replaced(member, await read(context))


def uri_of(params: RawObject, method: str) -> str:
    uri = text_of(params, "uri")
    if not uri:
        raise RequestRefused(INVALID_PARAMS, f"{method} needs the uri of a resource")
    return uri


def _not_found(uri: str, message: str, context: RequestContext) -> RequestRefused:
    code = INVALID_PARAMS if context.modern else RESOURCE_NOT_FOUND
    return RequestRefused(code, message, {"uri": uri})


def is_own(uri: str) -> bool:
    """Return whether a URI has upwell's own scheme. No upstream can own such a URI. Case and
    surrounding whitespace are ignored."""
    return uri.partition(":")[0].strip().lower() == OWN_SCHEME


def _scheme(uri: str) -> str:
    scheme, colon, _ = uri.partition(":")
    return scheme.strip().lower() if colon else ""


def _matches(template: str, uri: str) -> bool:
    """Whether the literal parts of a URI template occur in `uri` in the same order."""
    first, *rest = _VARIABLE.split(template)
    if not rest:
        return template == uri
    if not uri.startswith(first):
        return False
    position = len(first)
    for part in rest[:-1]:
        start = uri.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return len(uri) - len(rest[-1]) >= position and uri.endswith(rest[-1])


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscriptions:
    """The functions for requests to be told of updates, changed lists and log messages."""

    def __init__(self, upstreams: UpstreamResources, audience: Audience) -> None:
        self._upstreams = upstreams
        self._audience = audience

    def methods(self) -> Mapping[str, Method]:
        return {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
            "subscriptions/listen": self._listen,
        }

    async def _subscribe(self, params: RawObject, context: RequestContext) -> Reply:
        uri = uri_of(params, "resources/subscribe")
        reply = await self._subscribe_upstream(uri, context)
        if not reply.error:
            context.owner.uris.add(uri)
        return reply

    async def _unsubscribe(self, params: RawObject, context: RequestContext) -> Reply:
        uri = uri_of(params, "resources/unsubscribe")
        context.owner.uris.discard(uri)
        return await self._unsubscribe_upstream(uri, context)

    async def _subscribe_upstream(self, uri: str, context: RequestContext) -> Reply:
        first_error: Reply | None = None
        for upstream in await self._upstreams.owners(uri):
            if upstream.about.offers("resources", "subscribe"):
                reply = await upstream.subscribe(uri, context)
                if not reply.error:
                    return reply
                first_error = first_error or reply
        if first_error is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"no server reports changes to {uri!r}")
        return first_error

    async def _unsubscribe_upstream(self, uri: str, context: RequestContext) -> Reply:
        """Unsubscribe from a resource, unless another client is still subscribed to it."""
        reply = Reply(result=b"{}")
        if self._audience.is_subscribed(uri):
            return reply
        for upstream in await self._upstreams.owners(uri):
            if uri in upstream.subscribed_uris:
                reply = await upstream.unsubscribe(uri, context)
        return reply

    async def _set_level(self, params: RawObject, context: RequestContext) -> RawObject:
        level = text_of(params, "level")
        if level not in LEVELS:
            raise RequestRefused(
                INVALID_PARAMS, f"no such level: {level!r}", {"levels": list(LEVELS)}
            )
        context.owner.log_level = level
        await self._upstreams.settled()
        lowest = RawObject().replaced("level", dumps(self._audience.log_level()))
        for upstream in self._upstreams.upstreams():
            about, is_ready = upstream.about, upstream.state is ServerState.READY
            if is_ready and about.offers("logging") and not about.modern:
                try:
                    await upstream.call("logging/setLevel", lowest, context)
                except UpstreamError as error:
                    LOG.warning("%s", error)
        return RawObject()

    async def _listen(self, params: RawObject, context: RequestContext) -> RawObject:
        if context.envelope is None or context.identity is None:
            raise RequestRefused(
                METHOD_NOT_FOUND, "subscriptions/listen is not part of this version"
            )
        requested = listen_filter(params)
        listener = SubscriptionStream(context.channel, requested, context.identity)
        acknowledgement = dumps({"notifications": requested.acknowledged()})
        self._audience.listeners.add(listener)
        try:
            await context.notify(ACKNOWLEDGED, stamped(acknowledgement, context.identity))
            for uri in sorted(requested.uris):
                try:
                    await self._subscribe_upstream(uri, context)
                except (RequestRefused, UpstreamError) as error:
                    LOG.info("changes to %r will not be reported: %s", uri, error)
            await asyncio.Event().wait()
        finally:
            self._audience.listeners.discard(listener)
            for uri in requested.uris:
                await self._unsubscribe_upstream(uri, context)
        return RawObject()
