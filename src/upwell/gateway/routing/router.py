"""Handles requests of both MCP eras (`gateway/eras.py`), from stdio and from HTTP. Read
`Router.reply()` first."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from upwell.gateway.calls.pipeline import Calls
from upwell.gateway.clients import Audience, Method, RequestContext, RequestRefused
from upwell.gateway.eras import (
    MODERN_VERSIONS,
    UNSUPPORTED_VERSION,
    Envelope,
    client_name,
    envelope_of,
    fresh_only,
    handshake_result,
    has_modern_parts,
    meta_of,
    modern_error,
    modern_result,
    offer_of,
)
from upwell.gateway.routing.pending_calls import STATE_PREFIX, PendingCalls
from upwell.gateway.routing.resources import UpstreamResources
from upwell.gateway.routing.tasks import Tasks
from upwell.gateway.routing.tools import CONTEXT_QUERY, LocalTools, Target, ToolCatalog, server_of
from upwell.gateway.upstreams.supervisor import ServerState, Upstream
from upwell.ground.errors import UpwellError
from upwell.ground.trace import LOG, present_trace_id, requested
from upwell.ground.types.rpc import Reply, ToolCall
from upwell.hosts import host_of_client
from upwell.wire.mirrors import Mirror
from upwell.wire.peer import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Message,
    error_body,
)
from upwell.wire.rawjson import NotJson, RawObject, check, dumps, kind_of

HANDSHAKE_ONLY = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
CACHEABLE = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
"""Modern results from these methods must state how long they may be cached."""
INTRODUCTION_SECONDS = 5.0
"""How long `initialize` waits for servers that are starting. Later starts present the saved offer,
and do not wait. The least patient of the known clients gives up after 10 seconds."""
TOOLS_CHANGED = "notifications/tools/list_changed"


class Router:
    """Passes each request to the part of the gateway that handles it, or to an upstream."""

    def __init__(
        self,
        catalog: ToolCatalog,
        upstreams: Callable[[], Sequence[Upstream]],
        own: LocalTools,
        pipeline: Calls,
        audience: Audience,
        resources: UpstreamResources,
    ) -> None:
        self._catalog = catalog
        self._upstreams = upstreams
        self._own = own
        self._pipeline = pipeline
        self._audience = audience
        self._resources = resources
        self._tasks = Tasks(upstreams)
        self._pending_calls = PendingCalls()
        self._methods: dict[str, Method] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": _ping,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
        }

    def add_methods(self, methods: Mapping[str, Method]) -> None:
        self._methods.update(methods)

    async def reply(
        self, message: Message, context_for: Callable[[Envelope | None], RequestContext]
    ) -> Reply:
        """Handle a request. Every failure except a cancellation becomes a JSON-RPC error."""
        method = message.method or ""
        try:
            params = _readable(message.params)
            context = context_for(supported(envelope_of(params)))
            answer = await self._answer(method, params, context)
            return await shaped(method, answer, modern=context.modern)
        except RequestRefused as refused:
            return Reply(error=refused.body)
        except NotJson as error:
            return Reply(error=error_body(INVALID_REQUEST, f"the request cannot be read: {error}"))
        except UpwellError as error:
            return Reply(error=error_body(INTERNAL_ERROR, str(error)))
        except Exception as error:
            LOG.exception("a request failed inside upwell")
            return Reply(error=error_body(INTERNAL_ERROR, f"upwell failed: {error!r}; see its log"))

    def notify(self, method: str, params: bytes) -> None:
        """Pass a client's notification on to the handshake-era upstreams that are up."""
        self._resources.notify(method, params)

    async def mirrors(self, name: str) -> tuple[Mirror, ...]:
        """Return the arguments of this tool whose values must also be sent in HTTP headers. An
        unknown tool has none."""
        try:
            return (await self._target(name)).mirrors
        except (RequestRefused, UpwellError):
            return ()

    async def tools_changed(self) -> None:
        """Notify the listeners that requested this, and the handshake-era sessions whose tool list
        is out of date."""
        listing = self._catalog.listing
        for session in list(self._audience.sessions.values()):
            if session.listed and session.listed != listing:
                session.listed = listing
                await session.broadcast(TOOLS_CHANGED, b"")
        for listener in list(self._audience.listeners):
            await listener.broadcast(TOOLS_CHANGED, b"")

    async def relay(
        self, upstream: Upstream, context: RequestContext, work: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        """Call `work`, which sends a request to `upstream`. Meanwhile, the upstream may ask the
        client questions. If the client is modern but the upstream is not, each question becomes the
        result of the client's request, while the request to the upstream stays open.
        """

        async def recorded() -> Reply:
            reply = await work()
            # A result that starts a task is short. Others may be megabytes long.
            if b'"taskId"' in reply.result[:4096]:
                self._tasks.record(upstream, reply, context)
            return reply

        if not context.modern or upstream.about.version_for(modern=True) in MODERN_VERSIONS:
            return await recorded()
        return await self._pending_calls.run(context, recorded())

    async def aclose(self) -> None:
        """Abandon the calls that wait for their clients, and close the pipeline."""
        await self._pending_calls.aclose()
        await self._pipeline.aclose()

    async def _answer(
        self, method: str, params: RawObject, context: RequestContext
    ) -> RawObject | Reply:
        if context.modern and method in HANDSHAKE_ONLY:
            raise RequestRefused(METHOD_NOT_FOUND, f"{method} is not part of this protocol version")
        if context.modern and (state := _own_state(params)):
            resumed = await self._pending_calls.resume(state, params, context)
            if resumed is None:
                raise RequestRefused(
                    INVALID_PARAMS, "no call is waiting under this requestState any more"
                )
            return resumed
        if (known := self._methods.get(method)) is not None:
            return await known(params, context)
        forwarded = await self._tasks.forward(method, params, context)
        if forwarded is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"neither upwell nor a server offers {method}")
        return forwarded

    async def _initialize(self, params: RawObject, context: RequestContext) -> RawObject:
        session = context.owner
        session.modern, session.capabilities = False, params.get("capabilities") or b"{}"
        session.host = host_of_client(client_name(params.get("clientInfo")))
        await self._resources.settled(INTRODUCTION_SECONDS)
        return RawObject.parse(dumps(offer_of(self._upstreams()).initialize_result(params)))

    async def _discover(self, _: RawObject, __: RequestContext) -> RawObject:
        await self._resources.settled()
        # A modern client may rely on every capability in the offer, so the offer includes only
        # servers whose capabilities are known. The client can discover again later.
        offer = offer_of(known for known in self._upstreams() if known.about.version)
        result = {"supportedVersions": list(MODERN_VERSIONS), **offer.members()}
        return fresh_only(RawObject.parse(dumps(result)))

    async def _list_tools(self, _: RawObject, context: RequestContext) -> RawObject:
        """List the tools of all servers. If a server is down, its latest known tools are listed."""
        await self._resources.settled()
        await self._catalog.refresh()
        return RawObject(((b'"tools"', self._catalog.listing_for(context)),))

    async def _call_tool(self, params: RawObject, context: RequestContext) -> Reply:
        name = params.value("name")
        if not isinstance(name, str):
            raise RequestRefused(INVALID_PARAMS, "tools/call needs the name of a tool")
        target = await self._target(name)
        if kind_of(_arguments(params)) != "object":
            raise RequestRefused(INVALID_PARAMS, "arguments must be an object")
        with requested(_traceparent(meta_of(params))):
            if target.upstream is None:
                return await self._own.call(target.tool, params.value("arguments") or {}, context)
            return await self._call_upstream(target, target.upstream, params, context)

    async def _call_upstream(
        self, target: Target, upstream: Upstream, params: RawObject, context: RequestContext
    ) -> Reply:
        call = _call_for(target, params, present_trace_id(), context.principal.name)
        return await self.relay(
            upstream, context, partial(self._pipeline.call, call, upstream, context)
        )

    async def _target(self, name: str) -> Target:
        """Find the tool with this public name. If its server is starting, wait for the server.

        Raises:
            RequestRefused: no server has such a tool.
            UpstreamError: the server with the name's prefix has failed, and none of its tools are
                known. If the name has no prefix, the same holds for any server without a prefix.
        """
        target = self._catalog.resolve(name)
        if target is not None and target.upstream and target.upstream.state is ServerState.STARTING:
            await target.upstream.settled()
            await self._catalog.refresh()
            target = self._catalog.resolve(name)
        if target is None:
            await self._await_owner(name)
            target = self._catalog.resolve(name)
        if target is None:
            raise RequestRefused(INVALID_PARAMS, f"Unknown tool: {name}")
        return target

    async def _await_owner(self, name: str) -> None:
        """Wait for the servers that may own an unlisted name: the server with the name's prefix,
        and those without a prefix.
        """
        prefix = server_of(name)
        for upstream in self._upstreams():
            if upstream.prefix in ("", prefix):
                await upstream.settled()
                await self._catalog.refresh()
                if prefix == upstream.prefix and not upstream.tools and upstream.failure:
                    raise upstream.failure


def _readable(params: bytes) -> RawObject:
    """Parse the params of a request. They are checked to the last byte, because an upstream might
    never reply to malformed JSON.
    """
    if kind_of(params) != "object":
        raise RequestRefused(INVALID_PARAMS, "params must be an object")
    try:
        check(params)
    except NotJson as error:
        raise RequestRefused(INVALID_PARAMS, f"params are not JSON: {error}") from error
    return RawObject.parse(params)


def supported(envelope: Envelope | None) -> Envelope | None:
    """The envelope of a request, if its version is supported.

    Raises:
        Refused: it is not.
    """
    if envelope is not None and envelope.version not in MODERN_VERSIONS:
        raise RequestRefused(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": list(MODERN_VERSIONS), "requested": envelope.version},
        )
    return envelope


def _own_state(params: RawObject) -> str:
    raw = params.get("requestState")
    if raw is None or STATE_PREFIX.encode() not in raw:
        return ""
    return str(params.value("requestState"))


async def shaped(method: str, answer: RawObject | Reply, *, modern: bool) -> Reply:
    """Convert a reply for the client's era."""
    if isinstance(answer, Reply) and answer.error:
        is_read = modern and method == "resources/read"
        return Reply(error=modern_error(answer.error)) if is_read else answer
    if isinstance(answer, Reply) and not modern and not has_modern_parts(answer.result):
        return answer
    result = await RawObject.opened(answer.result) if isinstance(answer, Reply) else answer
    if not modern:
        return Reply(result=handshake_result(result).encode())
    if method in CACHEABLE:
        result = fresh_only(result)
    return Reply(result=modern_result(result).encode())


def _call_for(target: Target, params: RawObject, trace_id: str, principal: str) -> ToolCall:
    """Return the call to send to the upstream. The agent's arguments stay unchanged, except that
    `_context_query` is removed if the tool does not declare it.
    """
    arguments = RawObject.parse(_arguments(params))
    args = arguments.decoded()
    value = args.get(CONTEXT_QUERY)
    query = value if isinstance(value, str) else ""
    if CONTEXT_QUERY in arguments and not target.declares_query:
        arguments = arguments.without(CONTEXT_QUERY)
        params = params.replaced("arguments", arguments.encode())
        args.pop(CONTEXT_QUERY, None)
    return ToolCall(
        server=target.upstream.name if target.upstream else "",
        tool=target.tool,
        params=params.replaced("name", dumps(target.tool)).encode(),
        args={**args, CONTEXT_QUERY: query} if query else args,
        query=query,
        annotations=target.annotations,
        declared=target.declared,
        trace_id=trace_id,
        principal=principal,
    )


def _arguments(params: RawObject) -> bytes:
    """Return the arguments of a call. `null` stands for none, as servers read it, and is passed on
    as it is."""
    raw = params.get("arguments") or b"null"
    return b"{}" if raw.strip() == b"null" else raw


async def _ping(_: RawObject, __: RequestContext) -> RawObject:
    return RawObject()


def _traceparent(meta: RawObject) -> str:
    parent = meta.value("traceparent")
    return parent if isinstance(parent, str) else ""
